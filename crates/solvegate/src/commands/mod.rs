//! The commands, one file each. Most of them call a gateway through `gateway_client`.

mod audit;
mod banner;
mod batch;
mod config_changes;
mod dead_letters;
mod declarations;
mod doctor;
mod feedback;
mod gateway_client;
mod kinds;
mod money;
mod pause;
mod pools;
pub mod progress;
mod queries;
mod reconcile;
mod retry_table;
mod serve;
mod sim;
mod sites;
mod solve;
mod store;
mod tables;
mod what_if;

use std::process::ExitCode;

use clap::CommandFactory as _;

use self::queries::Query;
use crate::{
    cli::{Cli, Command, ConfigAction, StatsArgs},
    config::{Sources, schema},
    exit::{Exit, Failure},
    logging, output,
};

#[derive(Debug)]
pub struct Context {
    pub sources: Sources,
}

/// Runs a command and prints its failure to stderr.
pub fn run(cli: Cli) -> ExitCode {
    match try_run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit.into()
        }
    }
}

fn try_run(cli: Cli) -> Result<(), Failure> {
    let context = Context { sources: cli.sources() };
    let default = if matches!(cli.command, Command::Serve(_)) { "info" } else { "error" };
    let filter = cli.log.as_deref().or(context.sources.environment.get("RUST_LOG"));
    logging::start(filter.unwrap_or(default))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(Failure::of(Exit::Failed))?.block_on(dispatch(&context, cli.command))
}

async fn dispatch(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(_) => serve::run(context).await,
        Command::Solve(args) => solve::run(context, &args).await,
        Command::Batch(args) => Box::pin(batch::run(context, &args)).await,
        Command::Fetch(args) => solve::fetch(context, &args).await,
        Command::Feedback(args) => feedback::run(context, &args).await,
        Command::Kinds(args) => kinds::run(args.json),
        Command::Sim(args) => sim::run(context, &args).await,
        Command::History(args) => queries::history(&args).run(context, &args.client).await,
        Command::Active(client) => {
            Query::new("/v1/active", tables::active).run(context, &client).await
        }
        Command::Stats(StatsArgs { date, client }) => {
            Query::new("/v1/stats", money::stats).with("date", date).run(context, &client).await
        }
        Command::Report(args) => queries::report(&args).run(context, &args.client).await,
        Command::Reconcile(args) => Box::pin(reconcile::run(context, &args)).await,
        Command::WhatIf(args) => Box::pin(what_if::run(context, &args)).await,
        Command::DeadLetters(action) => Box::pin(dead_letters::run(context, &action)).await,
        Command::Audit(action) => Box::pin(audit::run(context, &action)).await,
        Command::Pools(args) => Box::pin(pools::run(context, &args)).await,
        Command::Pause(args) => Box::pin(pause::pause(context, &args)).await,
        Command::Resume(args) => Box::pin(pause::resume(context, &args)).await,
        Command::Explain(args) => queries::explain(&args.id)?.run(context, &args.client).await,
        Command::Balance(client) => {
            Query::new("/v1/balance", money::balance).run(context, &client).await
        }
        Command::RetryTable(args) => retry_table::run(context, args.json),
        Command::Sites(action) => sites::run(context, &action).await,
        Command::Doctor(args) => Box::pin(doctor::run(context, args.json)).await,
        Command::Store(action) => store::run(context, &action).await,
        Command::Config(ConfigAction::Schema) => output::json(&schema()),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "solvegate", &mut script);
    output::write(&script)
}
