//! Tests of the real binary. One test crate, because linking is the slow part; one module per theme.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test they help")]

mod support;

mod bad_inputs;
mod callbacks;
mod cli;
mod crash;
mod dead_letters;
mod doctor;
mod drain;
mod dynamodb;
mod end_to_end;
mod faults;
mod guard;
mod keys;
mod ledger;
mod neighbours;
mod pools;
mod postgres;
mod readme;
mod redis;
mod replicas;
mod retry_table;
mod secrets;
mod slots;
mod slow;
mod strangers;
