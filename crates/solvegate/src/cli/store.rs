//! `store`, as it is typed.

use clap::{Args, Subcommand};

use crate::config::Flags;

const MIGRATE_EXAMPLES: &str = "\
Examples:
  solvegate store migrate --store postgres://gateway@db/shop
  solvegate store migrate --print | psql postgres://owner@db/shop
`serve` does the same when it starts; gateways that start together do it once.";

/// `store`.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// What to do with it
    #[command(subcommand)]
    pub action: StoreAction,
}

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Bring the tables of a PostgreSQL store up to date
    #[command(after_help = MIGRATE_EXAMPLES)]
    Migrate {
        /// The store: `postgres://HOST:PORT/DB`; or env:NAME, file:PATH [default: as `serve` has it]
        #[arg(long, value_name = "URL")]
        store: Option<String>,
        /// Only print the SQL, for the schema `solvegate`; nothing is connected to
        #[arg(long)]
        print: bool,
    },
}

impl StoreArgs {
    pub(super) fn apply(&self, flags: &mut Flags) {
        let StoreAction::Migrate { store, .. } = &self.action;
        flags.store.clone_from(store);
    }
}
