//! The options of `sim`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueHint};

use super::duration;

pub(super) const SIM_EXAMPLES: &str = "\
Site keys that begin with one of these decide how their task ends:
  unsolvable-   ERROR_CAPTCHA_UNSOLVABLE
  never-ready-  no answer, ever
  slow-         the answer comes a minute later
Paths beside in.php and res.php:
  GET /ledger              what was received, accepted, charged and answered, as JSON
  POST /prices             what tasks cost from now on: {\"turnstile\":\"0.002\"}
  POST /faults             plan faults of the next calls, or at a rate; GET lists, DELETE clears them
Faults: code, unreachable, drop, hang, status, too_many_requests, garbage, truncated, html, empty,
no_id, huge, trickle, unsolvable, never_ready, same_task; docs/simulator.md describes each.
Examples:
  solvegate sim --listen 127.0.0.1:9000 --seed 1 --ledger paid.jsonl
  curl -d '{\"on\":\"submit\",\"fault\":\"drop\",\"accepted\":true}' http://127.0.0.1:9000/faults
  curl -d '{\"on\":\"poll\",\"fault\":{\"status\":502},\"rate\":0.1}' http://127.0.0.1:9000/faults
  curl http://127.0.0.1:9000/ledger";

#[derive(Debug, Args)]
pub struct SimArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8403")]
    pub listen: SocketAddr,
    /// Seed: equal seeds and equal calls give equal answers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Concurrent tasks [default: unlimited]
    #[arg(long)]
    pub threads: Option<u32>,
    /// Solve in realistic times
    #[arg(long, conflicts_with = "solve_time")]
    pub realistic: bool,
    /// Solve in exactly this time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub solve_time: Option<Duration>,
    /// Append every accepted task to this file, as a JSON line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ledger: Option<PathBuf>,
    /// Keep the tasks in this file, and go on with those that are in it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tasks: Option<PathBuf>,
    /// Behave like CaptchaAI: sell threads instead of solves
    #[arg(long)]
    pub captchaai: bool,
    /// Ban callers that poll too often, as the service does
    #[arg(long)]
    pub bans: bool,
    /// The account's key: env:NAME or file:PATH [default: any of 32 characters]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}
