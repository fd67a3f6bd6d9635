//! Findings about the server of a store. `doctor` prints them, and the gateway logs them at start.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub weight: Weight,
    /// The observation and its consequence.
    pub what: String,
    pub remedy: Option<String>,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    Good,
    /// The store works, but the setup can cost money.
    Risky,
    /// The store is not opened.
    Bad,
}

impl Finding {
    pub fn good(what: impl Into<String>) -> Self {
        Self { weight: Weight::Good, what: what.into(), remedy: None }
    }

    pub fn risky(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Risky, what: what.into(), remedy: Some(remedy.into()) }
    }

    pub fn bad(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Bad, what: what.into(), remedy: Some(remedy.into()) }
    }

    /// The median of a few round trips to the server.
    pub(crate) fn latency(mut took: Vec<Duration>, decision: &str) -> Self {
        took.sort_unstable();
        let millis = took.get(took.len() / 2).map_or(0.0, |middle| middle.as_secs_f64() * 1000.0);
        if millis > 20.0 {
            return Self::risky(
                format!("an answer takes {millis:.1} ms, and every decision is {decision}"),
                "put the gateway nearer to the server",
            );
        }
        Self::good(format!("an answer takes {millis:.2} ms"))
    }
}
