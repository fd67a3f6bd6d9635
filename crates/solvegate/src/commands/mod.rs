//! What the commands do. One file per command; [`gateway`] is whom most of them ask.

mod banner;
mod dead_letters;
mod doctor;
pub mod gateway;
mod pools;
pub mod progress;
mod readings;
mod retry_table;
mod serve;
mod sim;
mod sites;
mod solve;
mod store;
mod tables;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::CommandFactory as _;

use crate::{
    cli::{Cli, Command},
    config::Sources,
    exit::{Exit, Failure},
    logging,
};

/// What every command may need.
#[derive(Debug)]
pub struct Context {
    /// Where the configuration comes from.
    pub sources: Sources,
}

/// Runs a command to its exit code; a failure is said on stderr.
pub fn run(cli: Cli) -> ExitCode {
    match try_run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit.into()
        }
    }
}

fn try_run(cli: Cli) -> Result<(), Failure> {
    let context = Context { sources: cli.sources() };
    let usual = if matches!(cli.command, Command::Serve(_)) { "info" } else { "error" };
    let filter = cli.log.as_deref().or(context.sources.environment.get("RUST_LOG"));
    logging::start(filter.unwrap_or(usual))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(Failure::of(Exit::Failed))?.block_on(dispatch(&context, cli.command))
}

async fn dispatch(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(_) => serve::run(context).await,
        Command::Solve(args) => solve::run(context, &args).await,
        Command::Sim(args) => sim::run(context, &args).await,
        Command::History(args) => readings::history(&args).ask(context, &args.whom).await,
        Command::Active(args) => readings::active().ask(context, &args.whom).await,
        Command::Stats(args) => readings::stats(args.date.as_ref()).ask(context, &args.whom).await,
        Command::Report(args) => readings::report(&args).ask(context, &args.whom).await,
        Command::DeadLetters(args) => Box::pin(dead_letters::run(context, &args.action)).await,
        Command::Pools(args) => Box::pin(pools::run(context, &args)).await,
        Command::Explain(args) => readings::explain(&args.id)?.ask(context, &args.whom).await,
        Command::Balance(args) => readings::balance().ask(context, &args.whom).await,
        Command::RetryTable(args) => retry_table::run(context, args.json),
        Command::Sites(args) => sites::run(context, &args.action),
        Command::Doctor(args) => Box::pin(doctor::run(context, args.json)).await,
        Command::Store(args) => store::run(context, &args.action).await,
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "solvegate", &mut script);
    Ok(io::stdout().write_all(&script)?)
}
