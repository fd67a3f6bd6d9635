//! The domain of solvegate: types, rules and ports. The crate does no I/O; time and randomness come in through ports, so
//! that every rule can be tested without waiting and simulated from a seed.
//!
//! # Layout
//! - [`challenge`], [`fingerprint`]: what has to be solved, and when two challenges are the same
//! - [`claim`], [`solve`], [`attempt`], [`token`]: a worker's request, our effort, what we pay for, what comes back
//! - [`lease`]: which process may move a solve; [`account_share`]: how processes share the account's limits; [`retry`]: what a failure means; [`dead_letter`]: solves we gave up on
//! - [`ledger`], [`chain`], [`money`]: every decision and fact, how changes of them are found, and what they cost; [`counts`]: the daily sums; [`invariant`]: what must always hold
//! - [`reconcile`]: the ledger against the provider's balance
//! - [`what_if`]: what the ledger's claims would have cost under other settings
//! - [`pool`]: standing orders, and how much they may waste; [`callback`]: notices to workers and to the operator
//! - [`actor`], [`admin_action`], [`pause`]: who administers the gateway, and what they can do
//! - [`site`], [`declarations`]: which challenges may be solved, and for whom; [`time`], [`id`], [`secret`], [`key`], [`rate`]: small values
//! - [`ports`]: the traits between the engine and the outside world

#![warn(missing_docs)]

#[macro_use]
mod text;

pub mod account_share;
pub mod actor;
pub mod admin_action;
pub mod attempt;
pub mod budget;
pub mod callback;
pub mod chain;
pub mod challenge;
pub mod claim;
pub mod counts;
pub mod dead_letter;
pub mod declarations;
pub mod fingerprint;
pub mod id;
pub mod invariant;
pub mod key;
pub mod lease;
pub mod ledger;
pub mod money;
pub mod pause;
pub mod pool;
pub mod ports;
pub mod prices;
pub mod rate;
pub mod reconcile;
pub mod retry;
pub mod secret;
pub mod site;
pub mod solve;
pub mod time;
pub mod token;
pub mod what_if;
