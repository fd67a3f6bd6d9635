//! `config`, as it is typed.

use clap::{Args, Subcommand};

const SCHEMA_EXAMPLES: &str = "\
Example:
  solvegate config schema > solvegate.schema.json
Editors with a TOML language server complete and check solvegate.toml with it.
docs/configuration.md describes every key; solvegate.example.toml shows them.";

/// `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to describe
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to describe.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum ConfigAction {
    /// Print the JSON Schema of solvegate.toml
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema,
}
