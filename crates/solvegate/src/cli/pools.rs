//! The options of `pools`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use super::{ChallengeArgs, ClientArgs, duration, solve::kind};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PoolsArgs {
    /// Action; without one, pools are listed
    #[command(subcommand)]
    pub action: Option<PoolsAction>,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Subcommand)]
pub enum PoolsAction {
    /// List pools, as `pools` alone does
    List {
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Announce demand, so that tokens are ready in time
    #[command(after_help = EXPECT_EXAMPLES, group = ArgGroup::new("when").required(true))]
    Expect {
        /// The pool's id
        id: String,
        /// Number of tokens expected, 1 to 1000
        #[arg(long, value_name = "N")]
        count: u32,
        /// Time until they are needed, e.g. 10m
        #[arg(long = "in", value_name = "DURATION", value_parser = duration, group = "when")]
        wait: Option<Duration>,
        /// The same as a time, e.g. 2026-11-15T20:00:00Z
        #[arg(long, value_name = "TIME", group = "when")]
        at: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Open a pool, or change the one for the same challenge
    #[command(after_help = SET_EXAMPLES)]
    Set(PoolSetArgs),
    /// Close a pool; its stock serves the next claims
    Close {
        /// The pool's id
        id: String,
        #[command(flatten)]
        client: ClientArgs,
    },
}

#[derive(Debug, Args)]
pub struct PoolSetArgs {
    /// Kind of challenge: turnstile, recaptcha_v2 …
    #[arg(long, value_parser = kind)]
    pub kind: String,
    #[command(flatten)]
    pub challenge: ChallengeArgs,
    /// Number of tokens kept ready, or `auto` to follow the demand
    #[arg(long, default_value = "auto")]
    pub level: String,
    /// Upper limit for `auto`
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub max: u32,
    /// With `auto`, tokens that may expire unused per token served, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.10)]
    pub waste: f64,
    /// Project that the cost is charged to
    #[arg(long, default_value = "pool")]
    pub project: String,
    #[command(flatten)]
    pub client: ClientArgs,
}

pub(super) const LIST_EXAMPLES: &str = "\
Pools are declared in solvegate.toml; those opened with `set` stay until they are closed:
  [[pool]]
  kind = \"turnstile\"
  sitekey = \"0x4AAA\"
  pageurl = \"https://shop.example.com/login\"
  level = \"auto\"            # or a number; also: max, waste, params, project";

const EXPECT_EXAMPLES: &str = "\
Examples:
  solvegate pools expect 3f2a90c41b7d --count 50 --in 10m
  solvegate pools expect 3f2a90c41b7d --count 50 --at 2026-11-15T20:00:00Z";

const SET_EXAMPLES: &str = "\
Example:
  solvegate pools set --kind turnstile --sitekey 0x4AAA --pageurl https://shop.example.com/login --level 5";

// === impl PoolsArgs ===

impl PoolsArgs {
    pub fn client(&self) -> &ClientArgs {
        match &self.action {
            None => &self.client,
            Some(
                PoolsAction::List { client }
                | PoolsAction::Expect { client, .. }
                | PoolsAction::Close { client, .. },
            ) => client,
            Some(PoolsAction::Set(args)) => &args.client,
        }
    }
}
