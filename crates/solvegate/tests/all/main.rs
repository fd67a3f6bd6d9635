//! Tests of the real binary. One test crate, because linking is the slow part; one module per theme.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test they help")]

mod support;

mod account;
mod after_failure;
mod at_rest;
mod audit;
mod bad_inputs;
mod batch;
mod budgets;
mod callbacks;
mod cli;
mod clients;
mod commands;
mod crash;
mod dead_letters;
mod demo;
mod doctor;
mod drain;
mod dynamodb;
mod end_to_end;
mod faults;
mod guard;
mod keys;
mod kinds;
mod ledger;
mod money;
mod neighbours;
mod pools;
mod postgres;
mod readme;
mod reconcile;
mod redis;
mod reload;
mod replicas;
mod retry_table;
mod secrets;
mod simulator;
mod slots;
mod slow;
mod stops;
mod strangers;
mod terminal;
