//! What the claims of the ledger would have cost under other settings.
//!
//! [`Replay`] reads the ledger once, in order. It counts what really happened, and beside it which solves the other settings
//! would have added or saved. An added solve costs what solves of its kind really cost on average, so the result is an
//! estimate; with the settings in force nothing is added or saved, and it is what happened. [`ASSUMPTIONS`] is printed with
//! every result.

mod outcome;
mod replay;

#[cfg(test)]
mod tests;

pub use outcome::{Outcome, WhatIf};
pub use replay::{ClaimFacts, KeyUse, Replay};

use std::time::Duration;

/// The settings of a replay. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Settings {
    /// How long the answer of a claim without a key is reused; unchanged if `None`.
    pub reuse_window: Option<Duration>,
    /// Claims without a key are never reused, not even in flight.
    pub no_reuse: bool,
    /// A repeated idempotency key opens a new solve.
    pub no_keys: bool,
    /// Claims for the same picture do not share a solve.
    pub no_joins: bool,
    /// Pools order nothing.
    pub no_pools: bool,
    /// Every task is polled at this interval; unchanged if `None`.
    pub poll_every: Option<Duration>,
}

/// What a result rests on.
pub const ASSUMPTIONS: [&str; 6] = [
    "a solve that is added takes as long, fails as often and costs as much as solves of its kind did on these days",
    "a claim's repeats are counted from its first on, and without their times: they are taken to come together with the first",
    "workers ask for the same things at the same times, whatever they are answered",
    "without pools, every claim that got a token of a pool opens a solve; tokens that claims left over are reused as before",
    "tasks are ready when their answer was seen; --poll-every sees it at its next multiple, and says nothing about refusals",
    "sites with a `reuse` of their own follow --reuse-window and --no-reuse like others",
];
