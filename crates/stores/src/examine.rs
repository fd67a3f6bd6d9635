//! What was seen of a server when the store was opened: for `doctor`, and for the log.

use std::time::Duration;

/// One thing seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub weight: Weight,
    /// What was seen, and what follows from it.
    pub what: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// As it should be.
    Good,
    /// It works, and may cost money one day.
    Risky,
    /// The store is refused like this.
    Bad,
}

impl Finding {
    /// Something that is as it should be.
    pub fn good(what: impl Into<String>) -> Self {
        Self { weight: Weight::Good, what: what.into(), remedy: None }
    }

    /// Something that may cost money one day.
    pub fn risky(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Risky, what: what.into(), remedy: Some(remedy.into()) }
    }

    /// Something the store is refused for.
    pub fn bad(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Bad, what: what.into(), remedy: Some(remedy.into()) }
    }

    /// How far away a server is: the middle of a few looks.
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
