//! The options of `solve`, `fetch`, `feedback` and `kinds`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, ValueHint};
use domain::challenge::Kind;

use super::{ClientArgs, duration};

pub(super) const SOLVE_EXAMPLES: &str = "\
Examples:
  solvegate solve --kind turnstile --sitekey 0x4AAA --pageurl https://shop.example.com/login
  solvegate solve --kind image --image picture.png --json
  solvegate solve --server http://127.0.0.1:8402 --key file:worker.key --kind recaptcha_v2 \\
    --sitekey 6Le-wvkS --pageurl https://shop.example.com/ --idempotency-key order-17";

pub(super) const FETCH_EXAMPLES: &str = "\
Examples:
  solvegate fetch 482915037264815
  solvegate fetch 482915037264815 --server http://127.0.0.1:8402 --key env:WORKER_KEY --wait 2m";

#[derive(Debug, Args)]
pub struct SolveArgs {
    #[arg(long, value_parser = kind, help = kinds_help())]
    pub kind: String,
    #[command(flatten)]
    pub challenge: ChallengeArgs,
    /// Picture of an image kind
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub image: Option<PathBuf>,
    /// Your own key for this claim: the same key returns the same claim, paid once
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Always open a new claim; never replay or join another
    #[arg(long)]
    pub fresh: bool,
    /// Give up after this time
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "180s")]
    pub deadline: Duration,
    #[command(flatten)]
    pub client: ClientArgs,
}

/// A challenge without its kind.
#[derive(Debug, Args)]
pub struct ChallengeArgs {
    /// The site's public key
    #[arg(long)]
    pub sitekey: Option<String>,
    /// The page the challenge is on
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub pageurl: Option<String>,
    /// Another parameter of the kind; may be repeated
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub params: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct FetchArgs {
    /// The claim's id
    pub id: String,
    /// How long to wait for the token
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub wait: Duration,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct FeedbackArgs {
    /// The claim's id
    pub id: String,
    /// Whether the site accepted the token
    #[arg(value_enum)]
    pub verdict: Verdict,
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Verdict {
    Good,
    Bad,
}

/// Needs no configuration and no gateway.
#[derive(Debug, Args)]
pub struct KindsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.into(), value.into()))
        .ok_or_else(|| "expected NAME=VALUE".into())
}

fn kinds_help() -> String {
    let names: Vec<_> = Kind::known().map(|kind| kind.name().to_owned()).collect();
    format!("Kind of challenge: {}; `solvegate kinds` describes them", names.join(", "))
}

pub(super) fn kind(text: &str) -> Result<String, String> {
    text.parse::<Kind>().map(|_| text.into()).map_err(|error| error.to_string())
}
