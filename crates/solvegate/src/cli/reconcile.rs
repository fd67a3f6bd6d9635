//! The options of `reconcile`.

use clap::Args;

use super::ClientArgs;

pub(super) const RECONCILE_NOTES: &str = "\
The gateway writes the account's balance to its ledger every 15 minutes. Between two readings the
provider charged their difference, and the ledger says what it should be. Attempts whose charge is
uncertain are listed and may explain a difference; docs/reconcile.md has the rules.
Exit codes: 0 it adds up, 1 it does not, 6 it cannot be judged.
Examples:
  solvegate reconcile
  solvegate reconcile --day 2026-11-15 --json
  solvegate reconcile --day 2026-11-15 --top-up 50.00";

#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// The day (UTC), e.g. 2026-11-15 [default: today]
    #[arg(long, value_name = "DAY")]
    pub day: Option<String>,
    /// What was paid in on that day; without it, the time around a rise of the balance is not judged
    #[arg(long, value_name = "AMOUNT")]
    pub top_up: Option<String>,
    #[command(flatten)]
    pub client: ClientArgs,
}
