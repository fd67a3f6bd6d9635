//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueHint};

use crate::{
    dead_letters::DeadLettersArgs, polling::PollingArgs, pool::PoolArgs, server::ServerArgs,
};

/// Measures the gateway against its ceiling, in one run.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 100)]
pub(crate) struct Cli {
    /// Filter of the log on stderr, e.g. `debug` or `engine=trace`
    #[arg(long, global = true, value_name = "FILTER", env = "RUST_LOG", default_value = "error")]
    pub(crate) log: String,

    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Answers from stock or replay, against a bare handler
    Hit {
        #[command(flatten)]
        rounds: RunOptions,
        /// On this Redis or PostgreSQL, against a handler that queries it once; removed afterwards [default: in memory]
        #[arg(long, value_name = "URL")]
        store: Option<String>,
    },
    /// Claims on disk before they are answered, against a bare handler
    Durable {
        #[command(flatten)]
        rounds: RunOptions,
        /// Directory for the store, removed afterwards: put it on the disk you care about [default: current directory]
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        data: Option<PathBuf>,
    },
    /// Memory per waiting solve and per held request, against bare loops and a bare handler
    Inflight {
        #[command(flatten)]
        rounds: RunOptions,
        /// Number of waiting solves
        #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [10_000, 100_000])]
        solves: Vec<usize>,
        /// Number of held requests
        #[arg(long, value_name = "N", default_value_t = 2_000)]
        held: usize,
    },
    /// New claims when a million are stored, against a thousand
    #[command(mut_arg("rounds", |arg| arg.default_value("1")))]
    Growth(GrowthArgs),
    /// Lists and totals on a long history in PostgreSQL, against a short one
    History(HistoryArgs),
    /// Decisions of several gateways on one Redis or PostgreSQL, against those of one
    #[command(mut_arg("rounds", |arg| arg.default_value("3")))]
    Decisions(DecisionsArgs),
    /// Idle slots, shares and refusals while claims wait, in virtual time
    Slots(RunOptions),
    /// Lag and calls of learned polling, against fixed 5 s and the optimum, in virtual time
    Polling(PollingArgs),
    /// Hits, waste and cost of an `auto` pool, against four alternatives, in virtual time
    #[command(mut_arg("rounds", |arg| arg.default_value("5")))]
    Pool(PoolArgs),
    /// Many dead letters: lists, filters, revival and purge on both local stores, against new claims
    #[command(alias = "letters")]
    DeadLetters(DeadLettersArgs),
    /// A measured server, which takes commands on stdin and ends with it
    #[command(hide = true)]
    Server(ServerArgs),
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RunOptions {
    /// Number of rounds, over which medians are taken. In virtual time each has its own seed
    #[arg(long, visible_alias = "seeds", default_value_t = 7)]
    pub(crate) rounds: u32,
    /// Seconds of load (of waiting, for `inflight`) per path and round; ignored by benches without load
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GrowthArgs {
    #[command(flatten)]
    pub(crate) rounds: RunOptions,
    /// On this Redis or PostgreSQL; removed afterwards [default: in memory]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Number of stored claims
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) claims: usize,
    /// How many of them are in flight
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) inflight: usize,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) rounds: RunOptions,
    /// On this PostgreSQL, in its own schema, removed afterwards
    #[arg(long, value_name = "URL")]
    pub(crate) store: String,
    /// Number of claims in the long history, six rows each; the short one has a hundredth of them
    #[arg(long, value_name = "N", default_value_t = 850_000)]
    pub(crate) claims: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DecisionsArgs {
    #[command(flatten)]
    pub(crate) rounds: RunOptions,
    /// On this Redis or PostgreSQL; removed afterwards
    #[arg(long, value_name = "URL")]
    pub(crate) store: String,
    /// Numbers of concurrent gateways; the others are compared with the first
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 2, 3, 8])]
    pub(crate) gateways: Vec<usize>,
    /// Number of callers of each gateway
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) callers: usize,
}

impl RunOptions {
    /// The duration of the load of one path in one round.
    pub(crate) fn length(self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let read = text.parse().ok().filter(|seconds| (0.01..=60.0).contains(seconds));
    read.ok_or_else(|| "expected seconds from 0.01 to 60".into())
}
