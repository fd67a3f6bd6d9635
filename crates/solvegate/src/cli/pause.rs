//! The options of `pause` and `resume`.

use clap::Args;

use super::ClientArgs;

#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Pause nothing; list what is paused, since when and by whom
    #[arg(long, conflicts_with_all = ["site", "worker"])]
    pub list: bool,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Everything, unless one of them is given.
#[derive(Debug, Args)]
pub struct ScopeArgs {
    /// Only the pages of this host, as in a declaration: shop.example.com, or *.example.com for all hosts below
    #[arg(long, value_name = "HOST", conflicts_with = "worker")]
    pub site: Option<String>,
    /// Only the claims of this worker; `pool` is the worker of all pools
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
}

pub(super) const PAUSE_NOTES: &str = "\
Every gateway on the store stops at once, also after a restart, until `resume`.
Paid tasks are polled on and their tokens delivered; new claims are admitted and wait.
Examples:
  solvegate pause --server https://solvegate.internal:8402 --key env:ADMIN_KEY
  solvegate pause --site shop.example.com
  solvegate pause --worker checkout-tests
  solvegate pause --list";

pub(super) const RESUME_NOTES: &str = "\
A pause ends as it was made: `resume` alone leaves the pauses of sites and workers.
Examples:
  solvegate resume
  solvegate resume --site shop.example.com";
