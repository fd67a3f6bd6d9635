//! The words of solvegate: domain types, pure rules and ports. No I/O, no clock, no chance of its own.
//!
//! # Layout
//! - [`challenge`], [`fingerprint`]: what has to be solved, and when two challenges are the same
//! - [`claim`], [`solve`], [`attempt`], [`token`]: what a caller wants, our effort, what we pay for, what comes back
//! - [`lease`]: who may move a solve; [`retry`]: what a failure means; [`dead_letter`]: what we gave up on
//! - [`ledger`], [`money`]: every decision and fact, and what it cost; [`invariant`]: what must always hold
//! - [`pool`]: standing orders, and how much they may waste; [`callback`]: what is told to others outside of any request
//! - [`site`]: which pages may be solved for; [`time`], [`id`], [`secret`]: small values
//! - [`ports`]: what the engine asks of the outside

pub mod attempt;
pub mod callback;
pub mod challenge;
pub mod claim;
pub mod dead_letter;
pub mod fingerprint;
pub mod id;
pub mod invariant;
pub mod lease;
pub mod ledger;
pub mod money;
pub mod pool;
pub mod ports;
pub mod retry;
pub mod secret;
pub mod site;
pub mod solve;
pub mod time;
pub mod token;
