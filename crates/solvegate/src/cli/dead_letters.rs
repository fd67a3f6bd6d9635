//! The options of `dead-letters`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{ClientArgs, duration};

#[derive(Debug, Subcommand)]
pub enum DeadLettersAction {
    /// List dead letters, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List {
        #[command(flatten)]
        filter: DeadLetterFilter,
        /// Include closed ones
        #[arg(long)]
        closed: bool,
        /// Maximum number of rows
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Cursor that the previous page printed
        #[arg(long)]
        cursor: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show one dead letter with every cause, earlier generations included
    Show {
        /// Id, as `list` shows it
        id: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Reopen them as new claims under the usual rules; equal ones are paid for once
    #[command(after_help = REVIVE_EXAMPLES)]
    Revive(ReviveArgs),
    /// Delete them; the ledger keeps their history
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(PurgeArgs),
}

const LIST_EXAMPLES: &str = "\
Examples:
  solvegate dead-letters list --code ERROR_CAPTCHA_UNSOLVABLE --newer-than 24h
  solvegate dead-letters list --site shop.example.com --worker checkout-tests --json";

const REVIVE_EXAMPLES: &str = "\
Examples:
  solvegate dead-letters revive s482915037264815
  solvegate dead-letters revive --code ERROR_CAPTCHA_UNSOLVABLE --newer-than 1h --dry-run
  solvegate dead-letters revive --class lapsed --rate 50/s
  solvegate dead-letters revive --all --rate 50/s";

const PURGE_EXAMPLES: &str = "\
Examples:
  solvegate dead-letters purge s482915037264815
  solvegate dead-letters purge --older-than 14d --dry-run
  solvegate dead-letters purge --older-than 14d --closed
  solvegate dead-letters purge --all";

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DeadLetterClass {
    Failed,
    Lapsed,
}

/// All given filters must match.
#[derive(Clone, Debug, Default, Args)]
pub struct DeadLetterFilter {
    /// Only this class: what failed, or what lapsed before anything was paid for it
    #[arg(long)]
    pub class: Option<DeadLetterClass>,
    /// Only with this code
    #[arg(long)]
    pub code: Option<String>,
    /// Only this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only pages on this host
    #[arg(long, value_name = "HOST")]
    pub site: Option<String>,
    /// Only this worker
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// Only this project
    #[arg(long, value_name = "NAME")]
    pub project: Option<String>,
    /// Only those older than this, e.g. 1h
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Only those newer than this, e.g. 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub newer_than: Option<Duration>,
}

/// The dead letters a command applies to.
#[derive(Debug, Args)]
pub struct BulkArgs {
    /// Ids, as `list` shows them
    pub ids: Vec<String>,
    #[command(flatten)]
    pub filter: DeadLetterFilter,
    /// All open ones
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct ReviveArgs {
    #[command(flatten)]
    pub which: BulkArgs,
    /// Claims reopened per second, 1/s to 1000/s
    #[arg(long, value_name = "N/s", value_parser = rate, default_value = "10/s")]
    pub rate: u32,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct PurgeArgs {
    #[command(flatten)]
    pub which: BulkArgs,
    /// Closed ones, too; an id reaches them without this
    #[arg(long)]
    pub closed: bool,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub client: ClientArgs,
}

// === impl DeadLettersAction ===

impl DeadLettersAction {
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::List { client, .. }
            | Self::Show { client, .. }
            | Self::Revive(ReviveArgs { client, .. })
            | Self::Purge(PurgeArgs { client, .. }) => client,
        }
    }
}

// === impl DeadLetterFilter ===

impl DeadLetterFilter {
    /// The given filters by their names in the v1 API.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let seconds = |age: Option<Duration>| age.map(|age| age.as_secs().to_string());
        let class = self.class.map(|class| match class {
            DeadLetterClass::Failed => "failed".to_owned(),
            DeadLetterClass::Lapsed => "lapsed".to_owned(),
        });
        let given = [
            ("class", class),
            ("code", self.code.clone()),
            ("kind", self.kind.clone()),
            ("site", self.site.clone()),
            ("worker", self.worker.clone()),
            ("project", self.project.clone()),
            ("older_than_s", seconds(self.older_than)),
            ("newer_than_s", seconds(self.newer_than)),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// A duration that also accepts days: `7d` is easier to write than `168h`.
fn age(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.trim().parse::<u32>().ok());
    match days {
        Some(days @ 1..=366) => Ok(Duration::from_secs(u64::from(days) * 86_400)),
        Some(_) => Err("expected 1d to 366d".into()),
        None => duration(text),
    }
}

fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse().ok();
    number
        .filter(|rate| (1..=1000).contains(rate))
        .ok_or_else(|| "expected 1/s to 1000/s, such as 10/s".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_rates_are_read_as_people_write_them() {
        assert_eq!(age("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!((age("90m"), age("1h")), (duration("90m"), duration("1h")));
        for bad in ["0d", "-1d", "400d", "d", "soon", "0s"] {
            assert!(age(bad).is_err(), "{bad}");
        }
        assert_eq!((rate("10/s"), rate("1000")), (Ok(10), Ok(1000)));
        for bad in ["0/s", "1001/s", "10/m", "", "-1/s"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
