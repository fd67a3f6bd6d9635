//! Logs go to stderr: as text on a terminal, otherwise as JSON lines.
//!
//! Of libraries only warnings and errors are kept, and information, whatever the filter says. At finer levels clients of
//! databases print what they send: tokens, callback addresses and credentials.

use std::io::{self, IsTerminal};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, Layer as _, filter::filter_fn, fmt, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::exit::{Exit, Failure};

/// Without credentials, Amazon's SDK warns some nine times before the error that says what to do. A filter that names it
/// shows them.
const QUIET: &str = "aws_config=error";

/// The crates of this program.
const OURS: [&str; 8] =
    ["domain", "wire", "engine", "stores", "upstream", "simulator", "doors", "solvegate"];

pub fn start(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(format!("{QUIET},{filter}")).map_err(|error| {
        Failure::new(Exit::Usage, format!("--log: {error}; use for example info or engine=debug"))
    })?;
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = if io::stderr().is_terminal() {
        lines.with_target(false).boxed()
    } else {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
    };
    let is_harmless = filter_fn(|about| *about.level() <= Level::INFO || is_ours(about));
    let started = tracing_subscriber::registry().with(filter).with(is_harmless).with(lines);
    started.try_init().map_err(Failure::of(Exit::Failed))
}

fn is_ours(about: &Metadata<'_>) -> bool {
    let name = about.target().split("::").next().unwrap_or_default();
    OURS.contains(&name)
}
