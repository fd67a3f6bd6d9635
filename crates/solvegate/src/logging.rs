//! Logs go to stderr: as text on a terminal, otherwise as JSON lines.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, fmt};

use crate::exit::{Exit, Failure};

pub fn start(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::new(Exit::Usage, format!("--log: {error}; use for example info or engine=debug"))
    })?;
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = if io::stderr().is_terminal() {
        builder.with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
    };
    started.map_err(Failure::of(Exit::Failed))
}
