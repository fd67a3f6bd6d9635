//! Findings about the server of a store. `doctor` prints them, and the gateway logs them at start.

use std::{future::Future, time::Duration};

use domain::ports::{Clock, ClockOffset, MAX_CLOCK_OFFSET, ServerTime};

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

    /// Compares the gateway's clock with the server's.
    pub(crate) async fn clock<E>(
        clock: &dyn Clock,
        server_time: impl Future<Output = Result<ServerTime, E>>,
    ) -> Result<Self, E> {
        let before = clock.now();
        let offset = ClockOffset::measure(before, server_time.await?, clock.now());
        let what = format!("this machine's clock is {offset} the server's");
        if !offset.is_too_far() {
            return Ok(Self::good(what));
        }
        let most = MAX_CLOCK_OFFSET.as_secs();
        Ok(Self::bad(
            format!("{what}; a gateway more than {most} s off decides nothing"),
            "set both clocks with NTP (timedatectl set-ntp true)",
        ))
    }
}
