//! The options of `history`, `stats`, `report` and `explain`.

use clap::Args;

use super::ClientArgs;

pub(super) const HISTORY_EXAMPLES: &str = "\
Examples:
  solvegate history --sitekey 0x4AAA --limit 5
  solvegate history --worker checkout-tests --state failed --from 2026-11-01 --to 2026-11-15";

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Only this site key
    #[arg(long)]
    pub sitekey: Option<String>,
    /// Only this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only in this state: waiting, served, failed, withdrawn, lapsed
    #[arg(long)]
    pub state: Option<String>,
    /// Only claims of this worker
    #[arg(long)]
    pub worker: Option<String>,
    /// Only claims charged to this project
    #[arg(long)]
    pub project: Option<String>,
    /// Only claims that ended with this code
    #[arg(long)]
    pub code: Option<String>,
    /// Only claims made on this day (UTC) or later, e.g. 2026-11-15
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Only claims made on this day (UTC) or earlier
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Maximum number of rows
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// Cursor that the previous page printed
    #[arg(long)]
    pub cursor: Option<String>,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The day (UTC), e.g. 2026-11-15 [default: today]
    #[arg(long, value_name = "DAY")]
    pub date: Option<String>,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// First day (UTC) [default: 30 days ago]
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Last day, included [default: today]
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Also show what the same requests would have cost if the service had been called directly
    #[arg(long)]
    pub compare: bool,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The claim's id
    pub id: String,
    #[command(flatten)]
    pub client: ClientArgs,
}
