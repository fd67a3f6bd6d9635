//! `solvegate bench`: measures the gateway and its ceiling in one run and reports ratios. No result is a failure: a
//! shared machine is no judge. Loopback only, bounded in time.
//!
//! - `hit`, `durable`, `inflight`: one file per bench, in this process, which makes the load
//! - `slots`, `polling`, `pool`: in virtual time, on a `virtual_world`, read from its ledgers, for `slots` by `turns`; solve
//!   times are `lognormal`
//! - `letters`, `growth`: on stores in this process, full of what `graves` and the `filler` made; `far`: a store on a server;
//!   `history`: on one with a long past; `decisions`: of several gateways on one
//! - `server`: what is measured, each a process of its own; `child`: this side of it; `vitals`: what it tells
//! - `load`: callers in a closed loop; `requests`: what they send; `sample`: one path in one round
//! - `challenges`: what is asked for; `report`: figures, bars, and how they are shown

mod challenges;
mod child;
mod decisions;
mod durable;
mod far;
mod filler;
mod graves;
mod growth;
mod history;
mod hit;
mod inflight;
mod letters;
mod load;
mod lognormal;
mod polling;
mod pool;
mod report;
mod requests;
mod sample;
mod server;
mod slots;
mod turns;
mod virtual_world;
mod vitals;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use crate::exit::Failure;
pub use letters::LettersArgs;
pub use polling::PollingArgs;
pub use pool::PoolArgs;
use report::Report;
use server::ServerArgs;

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
    /// Answers from stock or replay, against a bare handler
    Hit {
        #[command(flatten)]
        #[expect(missing_docs, reason = "flattened: its own fields carry the help")]
        rounds: Rounds,
        /// On this Redis or PostgreSQL, in a corner of its own, removed afterwards, against a handler that asks it once [default: in memory]
        #[arg(long, value_name = "URL")]
        store: Option<String>,
    },
    /// Claims on disk before they are answered, against a bare handler
    Durable {
        #[command(flatten)]
        #[expect(missing_docs, reason = "flattened: its own fields carry the help")]
        rounds: Rounds,
        /// Where the store is made, and removed afterwards: on the disk you care about [default: here]
        #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        data: Option<PathBuf>,
    },
    /// Memory per waiting solve and per held request, against bare loops and a bare handler
    Inflight {
        #[command(flatten)]
        #[expect(missing_docs, reason = "flattened: its own fields carry the help")]
        rounds: Rounds,
        /// How many solves wait
        #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [10_000, 100_000])]
        solves: Vec<usize>,
        /// How many requests are held
        #[arg(long, value_name = "N", default_value_t = 2_000)]
        held: usize,
    },
    /// New claims when a million are stored, against a thousand
    #[command(mut_arg("rounds", |arg| arg.default_value("1")))]
    Growth(GrowthArgs),
    /// Lists and sums on a large history in PostgreSQL, against a small one
    History(HistoryArgs),
    /// Decisions of several gateways on one PostgreSQL, against its bare commits
    #[command(mut_arg("rounds", |arg| arg.default_value("3")))]
    Decisions(DecisionsArgs),
    /// Idle slots, shares and refusals while claims wait, in virtual time
    Slots(Rounds),
    /// Lag and calls of learned polling, against fixed 5 s and the best, in virtual time
    Polling(PollingArgs),
    /// Hits, waste and cost of an `auto` pool, against four other ways, in virtual time
    #[command(mut_arg("rounds", |arg| arg.default_value("5")))]
    Pool(PoolArgs),
    /// Many dead letters: lists, filters, revival and purge on both stores, against new claims
    Letters(LettersArgs),
    /// A server that is measured; told what to do on stdin, ends with it
    #[command(hide = true)]
    Server(ServerArgs),
}

/// How often and how long.
#[derive(Clone, Copy, Debug, Args)]
pub struct Rounds {
    /// Rounds; medians are of these. In virtual time each has a seed of its own
    #[arg(long, visible_alias = "seeds", default_value_t = 7)]
    pub rounds: u32,
    /// Seconds of load (or of waiting, for `inflight`) per path and round; `letters` and those in virtual time have none
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `bench growth`.
#[derive(Clone, Debug, Args)]
pub struct GrowthArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened: its own fields carry the help")]
    pub rounds: Rounds,
    /// On this Redis or PostgreSQL, in a corner of its own, removed afterwards [default: in memory]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// How many claims are stored
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub claims: usize,
    /// How many of them are in flight
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub inflight: usize,
}

/// `history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened: its own fields carry the help")]
    pub rounds: Rounds,
    /// On this PostgreSQL, in a schema of its own, removed afterwards
    #[arg(long, value_name = "URL")]
    pub store: String,
    /// How many claims are stored, each six rows; a hundredth of them for the small history
    #[arg(long, value_name = "N", default_value_t = 850_000)]
    pub claims: u64,
}

/// `decisions`.
#[derive(Clone, Debug, Args)]
pub struct DecisionsArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened: its own fields carry the help")]
    pub rounds: Rounds,
    /// On this PostgreSQL, in a schema of its own, removed afterwards
    #[arg(long, value_name = "URL")]
    pub store: String,
    /// How many gateways decide together; one alone is measured too
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub gateways: usize,
    /// How many callers ask, all gateways together
    #[arg(long, value_name = "N", default_value_t = 192)]
    pub callers: usize,
}

/// Runs one bench and prints its report.
pub async fn run(bench: Bench) -> Result<(), Failure> {
    let (rounds, report) = match bench {
        Bench::Hit { rounds, store } => (rounds, hit::run(rounds, store).await?),
        Bench::Growth(args) => (args.rounds, growth::run(&args).await?),
        Bench::History(args) => (args.rounds, history::run(&args).await?),
        Bench::Decisions(args) => (args.rounds, decisions::run(&args).await?),
        Bench::Durable { rounds, data } => (rounds, durable::run(rounds, data).await?),
        Bench::Inflight { rounds, solves, held } => {
            (rounds, inflight::run(rounds, &solves, held).await?)
        }
        Bench::Slots(rounds) => (rounds, slots::run(rounds).await?),
        Bench::Polling(args) => (args.rounds, polling::run(args).await?),
        Bench::Pool(args) => (args.rounds, pool::run(args).await?),
        Bench::Letters(args) => (args.rounds, letters::run(args).await?),
        Bench::Server(args) => return server::run(args).await,
    };
    Report::print(&report, rounds.json)
}

impl Rounds {
    /// The load of one path in one round.
    fn length(self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let read = text.parse().ok().filter(|seconds| (0.01..=60.0).contains(seconds));
    read.ok_or_else(|| "expected seconds from 0.01 to 60".into())
}
