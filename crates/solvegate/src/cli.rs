//! The command line. Doc comments of fields are help texts; golden files hold them (tests/all/cli.rs).
#![expect(clippy::doc_markdown, reason = "the comments of fields are help texts on a terminal")]

mod audit;
mod batch;
mod dead_letters;
mod pause;
mod pools;
mod queries;
mod reconcile;
mod sim;
mod solve;
mod store;
mod what_if;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueHint};

use crate::config::{Environment, Flags, Sources, read_duration};

pub use audit::{AuditAction, AuditExportArgs, AuditShowArgs, AuditVerifyArgs, ExportFormat};
pub use batch::BatchArgs;
pub use dead_letters::{BulkArgs, DeadLetterFilter, DeadLettersAction, PurgeArgs, ReviveArgs};
pub use pause::{PauseArgs, ResumeArgs, ScopeArgs};
pub use pools::{PoolSetArgs, PoolsAction, PoolsArgs};
pub use queries::{ExplainArgs, HistoryArgs, ReportArgs, StatsArgs};
pub use reconcile::ReconcileArgs;
pub use sim::SimArgs;
pub use solve::{ChallengeArgs, FeedbackArgs, FetchArgs, KindsArgs, SolveArgs, Verdict};
pub use store::{Form, StoreAction};
pub use what_if::WhatIfArgs;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed (the claim failed, or there is no such item)
  2  the command line or the configuration is wrong
  3  the gateway, the store or the service cannot be reached
  4  refused: site not declared, budget or rate limit exceeded, wrong key
  5  the deadline passed
  6  it cannot be judged (reconcile)
  130  interrupted by Ctrl-C or SIGTERM";

/// A gateway between your workers and a paid solving service: paid once, delivered once, explained.
#[derive(Debug, Parser)]
#[command(name = "solvegate", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// Configuration file [default: solvegate.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, display_order = 900)]
    pub config: Option<PathBuf>,

    /// Log filter for stderr, e.g. `debug` or `engine=trace` [default: RUST_LOG, else info for `serve`, error for others]
    #[arg(long, global = true, value_name = "FILTER", display_order = 901)]
    pub log: Option<String>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Solve one challenge and print its token
    #[command(after_help = solve::SOLVE_EXAMPLES)]
    Solve(SolveArgs),
    /// Solve many challenges: JSON lines or CSV in, answers out as they arrive
    #[command(after_help = batch::BATCH_NOTES)]
    Batch(BatchArgs),
    /// Fetch the token of a claim that was made before
    #[command(after_help = solve::FETCH_EXAMPLES)]
    Fetch(FetchArgs),
    /// Say whether the site accepted the token of a claim: good or bad
    #[command(after_help = "Example:\n  solvegate feedback 482915037264815 bad")]
    Feedback(FeedbackArgs),
    /// List the kinds of challenges with their parameters, lifetime and sharing
    Kinds(KindsArgs),
    /// Run the simulated provider
    #[command(after_help = sim::SIM_EXAMPLES)]
    Sim(SimArgs),
    /// List claims, newest first
    #[command(after_help = queries::HISTORY_EXAMPLES)]
    History(HistoryArgs),
    /// List solves in flight
    Active(ClientArgs),
    /// Show the totals of a day
    #[command(after_help = "Example:\n  solvegate stats --date 2026-11-15 --json")]
    Stats(StatsArgs),
    /// Show what was paid and what was saved
    #[command(after_help = "Example:\n  solvegate report --from 2026-11-01 --to 2026-11-15")]
    Report(ReportArgs),
    /// Compare the ledger of a day with the provider's balance
    #[command(after_help = reconcile::RECONCILE_NOTES)]
    Reconcile(ReconcileArgs),
    /// Show what the claims of the last days would have cost under other settings
    #[command(after_help = what_if::WHAT_IF_NOTES)]
    WhatIf(WhatIfArgs),
    /// List, show, revive and purge dead letters: solves that failed for good
    #[command(subcommand)]
    DeadLetters(DeadLettersAction),
    /// Show, open and close pools, and announce demand
    #[command(after_help = pools::LIST_EXAMPLES)]
    Pools(PoolsArgs),
    /// Stop all submissions, or those of a site or worker, on every gateway
    #[command(after_help = pause::PAUSE_NOTES)]
    Pause(PauseArgs),
    /// End a pause
    #[command(after_help = pause::RESUME_NOTES)]
    Resume(ResumeArgs),
    /// Show everything that happened to a claim, in order
    #[command(after_help = "Example:\n  solvegate explain 482915037264815")]
    Explain(ExplainArgs),
    /// Show who did what, and verify or export the ledger
    #[command(subcommand)]
    Audit(AuditAction),
    /// Print the retry table in force: what each failure code means
    #[command(after_help = RETRY_TABLE_NOTES)]
    RetryTable(RetryTableArgs),
    /// List the declared sites, or check whether a page is covered
    #[command(subcommand)]
    Sites(SitesAction),
    /// Show the account's balance at the service
    Balance(ClientArgs),
    /// Check configuration, service, clock, store, port and sites, and say what to do
    #[command(after_help = DOCTOR_NOTES)]
    Doctor(DoctorArgs),
    /// Create or migrate the tables of a store, or print their definition
    #[command(subcommand)]
    Store(StoreAction),
    /// Describe the keys of the configuration file
    #[command(subcommand)]
    Config(ConfigAction),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  solvegate completions bash > ~/.local/share/bash-completion/completions/solvegate"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

const SERVE_EXAMPLES: &str = "\
Examples:
  solvegate serve                                  simulator, embedded store in ./solvegate-data
  CAPTCHAAI_API_KEY=… solvegate serve              the real service; declare your sites first
  REDIS_URL=redis://… solvegate serve              one of several gateways on one Redis
  DATABASE_URL=postgres://… solvegate serve        one of several gateways on one PostgreSQL
  solvegate serve --listen 0.0.0.0:8402 --tls-self-signed
Signals: SIGTERM and SIGINT drain and exit 0, SIGHUP reloads sites, workers, keys and the certificate.";

const RETRY_TABLE_NOTES: &str = "\
Single codes are changed in solvegate.toml:
  [retry.codes.\"ERROR_CAPTCHA_UNSOLVABLE\"]
  max = 1            # also: class, backoff (true or false), wait (the least one, \"5s\")";

const DOCTOR_NOTES: &str = "\
Marks: ✓ good, ! works but is risky, ✗ wrong.
A remedy stands below ! and ✗. Doctor submits nothing and buys nothing.
The exit code is 0 when nothing is wrong, else that of the first ✗:
2 configuration or sites, 3 service, store or port, 4 key or threads, 1 clock.
Examples:
  solvegate doctor --store redis://127.0.0.1:6379
  solvegate doctor --store postgres://127.0.0.1/solvegate";

const SCHEMA_EXAMPLES: &str = "\
Example:
  solvegate config schema > solvegate.schema.json
Editors with a TOML language server complete and check solvegate.toml with it.
docs/configuration.md describes every key; solvegate.example.toml shows them.";

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Where to listen [default: 127.0.0.1:8402]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Where to keep history, if not in the store: another store's URL
    #[arg(long, value_name = "URL")]
    pub ledger: Option<String>,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<String>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<String>,
    /// Serve TLS with a self-signed certificate, created at the first start
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub tls_self_signed: bool,
}

/// The ports of an engine in this process.
#[derive(Clone, Debug, Default, Args)]
pub struct EngineArgs {
    /// Directory of the embedded store, and of the keys generated at the first start [default: ./solvegate-data]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data: Option<PathBuf>,
    /// The service's address, or `sim` [default: sim unless CAPTCHAAI_API_KEY is set]
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// The store: `memory:`, `embedded:DIR`, `redis://HOST:PORT`, `rediss://…`, `redis+cluster://H1:P,H2:P`, `postgres://HOST:PORT/DB`, `dynamodb:TABLE`; a URL with a password as env:NAME or file:PATH
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
}

/// The gateway a command calls: a running one, or an engine in this process.
#[derive(Clone, Debug, Default, Args)]
pub struct ClientArgs {
    /// A running gateway; without it the command works on the store in this process
    #[arg(long, value_name = "URL", env = "SOLVEGATE_SERVER", value_hint = ValueHint::Url)]
    pub server: Option<String>,
    /// Worker or admin key for the gateway: env:NAME or file:PATH [default: the variable SOLVEGATE_KEY]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Certificate to trust for the gateway, PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub cacert: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Both read the configuration, or with `--server` the declarations in force in a running gateway.
#[derive(Debug, Subcommand)]
pub enum SitesAction {
    /// List the declarations of the configuration, or with --server those of a gateway
    List(ClientArgs),
    /// Check whether a declaration covers a page, and show the URL that would be forwarded
    Check {
        /// The page
        #[arg(value_hint = ValueHint::Url)]
        url: String,
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// Reads the configuration, not a running gateway.
#[derive(Debug, Args)]
pub struct RetryTableArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Checks the configuration that `serve` would use, not a running gateway.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Where the gateway would listen [default: 127.0.0.1:8402]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum ConfigAction {
    /// Print the JSON Schema of solvegate.toml
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema,
}

// === impl Cli ===

impl Cli {
    /// The sources of this command's configuration.
    pub fn sources(&self) -> Sources {
        let mut flags = Flags::default();
        match &self.command {
            Command::Serve(args) => args.apply(&mut flags),
            Command::Solve(SolveArgs { client, .. })
            | Command::Batch(BatchArgs { client, .. })
            | Command::History(HistoryArgs { client, .. })
            | Command::Active(client)
            | Command::Stats(StatsArgs { client, .. })
            | Command::Report(ReportArgs { client, .. })
            | Command::Reconcile(ReconcileArgs { client, .. })
            | Command::WhatIf(WhatIfArgs { client, .. })
            | Command::Explain(ExplainArgs { client, .. })
            | Command::Pause(PauseArgs { client, .. })
            | Command::Resume(ResumeArgs { client, .. })
            | Command::Fetch(FetchArgs { client, .. })
            | Command::Feedback(FeedbackArgs { client, .. })
            | Command::Sites(SitesAction::List(client) | SitesAction::Check { client, .. })
            | Command::Balance(client) => client.engine.apply(&mut flags),
            Command::DeadLetters(action) => action.client().engine.apply(&mut flags),
            Command::Audit(action) => action.client().engine.apply(&mut flags),
            Command::Pools(args) => args.client().engine.apply(&mut flags),
            Command::Doctor(args) => {
                args.engine.apply(&mut flags);
                flags.set("--listen", "listen", args.listen.as_ref());
            }
            Command::Store(StoreAction::Migrate { store, .. }) => {
                flags.set("--store", "store.url", store.as_ref());
            }
            Command::Sim(_)
            | Command::Kinds(_)
            | Command::RetryTable(_)
            | Command::Config(_)
            | Command::Completions { .. } => {}
        }
        Sources { file: self.config.clone(), environment: Environment::of_process(), flags }
    }
}

impl ServeArgs {
    fn apply(&self, flags: &mut Flags) {
        self.engine.apply(flags);
        flags.set("--listen", "listen", self.listen.as_ref());
        flags.set("--ledger", "store.ledger", self.ledger.as_ref());
        if self.tls_cert.is_some() || self.tls_key.is_some() || self.tls_self_signed {
            flags.replace("tls");
        }
        flags.set("--tls-cert", "tls.cert", self.tls_cert.as_ref());
        flags.set("--tls-key", "tls.key", self.tls_key.as_ref());
        let self_signed = self.tls_self_signed.then(|| "true".to_owned());
        flags.set("--tls-self-signed", "tls.self_signed", self_signed.as_ref());
    }
}

impl EngineArgs {
    fn apply(&self, flags: &mut Flags) {
        flags.data.clone_from(&self.data);
        flags.set("--upstream", "upstream.url", self.upstream.as_ref());
        flags.set("--store", "store.url", self.store.as_ref());
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let length = read_duration(text).filter(|length| *length > Duration::ZERO);
    length.ok_or_else(|| "expected a duration such as 30s or 2m".into())
}
