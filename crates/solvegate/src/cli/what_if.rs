//! The options of `what-if`.

use std::time::Duration;

use clap::Args;

use super::{ClientArgs, duration};
use crate::config::read_duration;

pub(super) const WHAT_IF_NOTES: &str = "\
Replays the claims of the ledger under other settings and shows what they would have cost, beside
what they did cost. It is an estimate; the assumptions are printed below it. Without options it
shows what happened twice.
Examples:
  solvegate what-if --no-keys --no-reuse           every repeat is paid
  solvegate what-if --reuse-window 0 --no-pools
  solvegate what-if --days 30 --poll-every 5s --json";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct WhatIfArgs {
    /// Reuse the answers of claims without a key for this long; 0 only while they are in flight
    #[arg(long, value_name = "DURATION", value_parser = window)]
    pub reuse_window: Option<Duration>,
    /// Never reuse the answers of claims without a key
    #[arg(long, conflicts_with = "reuse_window")]
    pub no_reuse: bool,
    /// Open a new solve for every repeated idempotency key
    #[arg(long)]
    pub no_keys: bool,
    /// Open a solve for every claim, also for the same picture at the same time
    #[arg(long)]
    pub no_joins: bool,
    /// Let pools order nothing
    #[arg(long)]
    pub no_pools: bool,
    /// Poll every task at this interval
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub poll_every: Option<Duration>,
    /// How many days back (UTC), today included
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=90))]
    pub days: u32,
    #[command(flatten)]
    pub client: ClientArgs,
}

fn window(text: &str) -> Result<Duration, String> {
    let length = if text == "0" { Some(Duration::ZERO) } else { read_duration(text) };
    length.ok_or_else(|| "expected 0 or a duration such as 30s or 2m".into())
}
