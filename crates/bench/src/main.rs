//! Measures the gateway and its ceiling in one run and reports ratios. A missed bar is a line in the report, not an
//! error, because a shared machine proves nothing. Loopback only, bounded in time. Run by `scripts/bench`; not shipped.
//!
//! # Layout
//! - [`cli`]: the command line; `hit`, `durable`, `inflight`: one file per bench; this process generates the load
//! - `slots`, `polling`, `pool`: in virtual time, on a `virtual_gateway`, evaluated from its ledgers (`slot_usage` for
//!   `slots`, with its `late_worker`); solve times are `lognormal`
//! - `dead_letters`, `growth`: on stores filled by `fixtures`; `history`, `decisions`: on a PostgreSQL only
//! - `remote_store`: a store on a server, removed afterwards; `probes`: plain connections to that server
//! - `server`: the measured programs, each in its own process; `server_process`: our end of it; `vitals`: the
//!   processor time, memory and writes it reports
//! - `load`: callers in a closed loop; `requests`: the requests they send; `sample`: one path in one round
//! - `challenges`: the challenges of all benches; `report`: figures, bars and how they are printed

mod challenges;
mod cli;
mod dead_letters;
mod decisions;
mod durable;
mod fixtures;
mod growth;
mod history;
mod hit;
mod inflight;
mod late_worker;
mod load;
mod lognormal;
mod polling;
mod pool;
mod probes;
mod remote_store;
mod report;
mod requests;
mod sample;
mod server;
mod server_process;
mod slot_usage;
mod slots;
mod virtual_gateway;
mod vitals;

use std::process::ExitCode;

use clap::Parser as _;
use solvegate::{
    exit::{Exit, Failure},
    logging,
};

use cli::{Bench, Cli};
use report::Report;

/// The allocator of the shipped binary, because the measured gateway runs in this program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match try_main(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit.into()
        }
    }
}

fn try_main(cli: Cli) -> Result<(), Failure> {
    logging::start(&cli.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(Failure::of(Exit::Failed))?.block_on(run(cli.bench))
}

async fn run(bench: Bench) -> Result<(), Failure> {
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
        Bench::DeadLetters(args) => (args.rounds, dead_letters::run(args).await?),
        Bench::Server(args) => return server::run(args).await,
    };
    Report::print(&report, rounds.json)
}
