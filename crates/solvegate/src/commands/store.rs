//! `solvegate store`: what has to be done to a store besides using it.

use stores::{Migrated, OpenError};

use super::Context;
use crate::{
    cli::StoreAction,
    exit::{Exit, Failure},
    output,
};

/// Runs `store migrate`.
pub(super) async fn run(context: &Context, action: &StoreAction) -> Result<(), Failure> {
    match action {
        StoreAction::Migrate { print: true, .. } => {
            output::line(format_args!("{}", stores::migrations_sql().trim_end()))
        }
        StoreAction::Migrate { print: false, .. } => migrate(context).await,
    }
}

async fn migrate(context: &Context) -> Result<(), Failure> {
    let store = context.sources.load()?.store;
    let done = stores::migrate(store.expose()).await.map_err(|error| {
        let is_usage = matches!(error, OpenError::NoTables(_) | OpenError::Address { .. });
        let exit = if is_usage { Exit::Usage } else { Exit::Unreachable };
        Failure::of(exit)(error)
    })?;
    let Migrated { from, to, steps } = done;
    if steps.is_empty() {
        return output::line(format_args!("{store} is up to date (version {to})"));
    }
    let steps = steps.join(", ");
    output::line(format_args!("{store} went from version {from} to {to}: {steps}"))
}
