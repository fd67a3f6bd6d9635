//! `solvegate bench`: measures the gateway and its ceiling in one run and reports ratios. One file per bench.

use clap::{Args, Subcommand};

use crate::exit::{Exit, Failure};

/// `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure
    #[command(subcommand)]
    pub bench: Bench,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Answers from stock or replay, memory store, against a bare handler
    Hit,
    /// Claims on disk before they are answered
    Durable,
    /// Memory per waiting solve
    Inflight,
}

/// Runs one bench. Hook: each bench is a file beside this one with `pub(super) async fn run() -> Result<(), Failure>`.
#[expect(clippy::unused_async, reason = "benches are asynchronous")]
pub async fn run(bench: Bench) -> Result<(), Failure> {
    let name = match bench {
        Bench::Hit => "hit",
        Bench::Durable => "durable",
        Bench::Inflight => "inflight",
    };
    Err(Failure::new(Exit::Usage, format!("bench {name} is not in this build")))
}
