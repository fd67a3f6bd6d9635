//! The options of `audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use domain::chain::EntryHash;

use super::ClientArgs;

const SHOW_EXAMPLES: &str = "\
Examples:
  solvegate audit show --actor ann --from 2026-11-01
  solvegate audit show --action reloaded --server https://gateway:8402 --key env:ADMIN_KEY";

const VERIFY_EXAMPLES: &str = "\
The last line is the number and hash of the newest entry. Whoever keeps it outside can later
prove with --expect that nothing up to there was changed.
Examples:
  solvegate audit verify --server https://gateway:8402 --key env:ADMIN_KEY
  solvegate audit verify --file november.jsonl --expect 48210:5f0c…";

const EXPORT_EXAMPLES: &str = "\
Example:
  solvegate audit export > november.jsonl";

#[derive(Debug, Subcommand)]
pub enum AuditAction {
    /// Show who did what from where, and what was refused, newest first
    #[command(after_help = SHOW_EXAMPLES)]
    Show(AuditShowArgs),
    /// Verify that no entry of the ledger was changed, removed or inserted
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(AuditVerifyArgs),
    /// Print the whole ledger with its hashes, one entry per line
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(AuditExportArgs),
}

#[derive(Debug, Args)]
pub struct AuditShowArgs {
    /// Only what this admin did, or what was refused to this worker
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Only this action: pool_set, withdrawn, revived, purged, reloaded, paused, refused …
    #[arg(long)]
    pub action: Option<String>,
    /// First time or day (UTC)
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Last time or day, included
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// Maximum number of rows
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
    /// Cursor that the previous page printed
    #[arg(long)]
    pub cursor: Option<String>,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct AuditVerifyArgs {
    /// Verify an export and call no gateway
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Begin with this entry
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub from: u64,
    /// The entry with this number must have this hash; may be repeated
    #[arg(long, value_name = "NUMBER:HASH", value_parser = noted)]
    pub expect: Vec<(u64, EntryHash)>,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct AuditExportArgs {
    /// The format of the lines
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub format: ExportFormat,
    /// Begin with this entry
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub from: u64,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A JSON object per line
    Jsonl,
}

fn noted(text: &str) -> Result<(u64, EntryHash), String> {
    let (seq, hash) = text.split_once(':').ok_or("expected a number, a colon and a hash")?;
    let seq = seq.parse().map_err(|_| format!("{seq:?} is not the number of an entry"))?;
    Ok((seq, hash.parse::<EntryHash>().map_err(|bad| bad.to_string())?))
}

// === impl AuditAction ===

impl AuditAction {
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::Show(AuditShowArgs { client, .. })
            | Self::Verify(AuditVerifyArgs { client, .. })
            | Self::Export(AuditExportArgs { client, .. }) => client,
        }
    }
}
