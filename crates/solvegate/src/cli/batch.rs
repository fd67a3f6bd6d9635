//! The options of `batch`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::ClientArgs;

/// Examples and the form of the lines.
pub(super) const BATCH_NOTES: &str = "\
FILE has one challenge per line, as JSON or as CSV with a header line; `-` reads stdin.
Members or columns: id, kind, sitekey, pageurl, image_file, project, deadline_s, fresh. Other
columns of a CSV file are parameters of the kind; in JSON these are in `params`.
  {\"id\":\"order-17\",\"kind\":\"turnstile\",\"sitekey\":\"0x4AAA\",\"pageurl\":\"https://shop.example.com/\"}
  id,kind,image_file
  scan-1,image,scans/1.png

The id is the line's idempotency key: a batch that is run again pays for nothing twice. Answers are
JSON lines in the order in which they arrive: `solve` as from POST /v1/solves, or `error`.
With --out, lines that FILE has answered are left alone and failed ones are tried again.

Examples:
  solvegate batch orders.ndjson --out answers.ndjson
  solvegate batch - --server http://127.0.0.1:8402 --key env:WORKER_KEY < orders.csv
The exit code is 1 when lines failed, 3 when the gateway went away and 130 after Ctrl-C; then run
the same command again.";

#[derive(Debug, Args)]
pub struct BatchArgs {
    /// The challenges, one per line: JSON, or CSV with a header; `-` for stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Append the answers to this file; what it has already is not asked for again [default: stdout]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub client: ClientArgs,
}
