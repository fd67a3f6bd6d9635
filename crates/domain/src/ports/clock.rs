//! Where time comes from. A port, so that tests and the simulation run in virtual time. Gateways that share a store compare
//! their clocks with its server's, because each decision takes its time from the gateway that makes it.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use crate::time::Timestamp;

/// The only source of time. `now` never goes backwards within a process.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// Returns at `at` or later.
    async fn sleep_until(&self, at: Timestamp);

    /// Catches up with the wall clock, if that is ahead: after the machine was suspended, for example.
    fn catch_up(&self) {}
}

/// What a server's clock showed: a time between `at` and `precision` after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// The earliest time it can have been.
    pub at: Timestamp,
    /// What the server does not say. Zero when it tells milliseconds.
    pub precision: Duration,
}

/// How far a gateway's clock is from the clock of the store's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockOffset {
    /// The gateway's clock shows a later time.
    Ahead(Duration),
    /// The gateway's clock shows an earlier time.
    Behind(Duration),
}

/// A gateway whose clock is farther from the server's decides nothing. Tokens are handed out with 10 s or more left, and a lease
/// lasts 15 s, so that two gateways that differ by twice as much still agree on what is alive.
pub const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(5);

// === impl ClockOffset ===

impl ClockOffset {
    /// The offset of a clock that showed `before` and `after` around the moment when the server's showed `server`. The time
    /// of the call itself is never part of it.
    pub fn measure(before: Timestamp, server: ServerTime, after: Timestamp) -> Self {
        let ahead = before.since(server.at.plus(server.precision));
        if ahead > Duration::ZERO {
            Self::Ahead(ahead)
        } else {
            Self::Behind(server.at.since(after))
        }
    }

    /// Whether the gateway must not decide anything.
    pub fn is_too_far(self) -> bool {
        let (Self::Ahead(by) | Self::Behind(by)) = self;
        by > MAX_CLOCK_OFFSET
    }
}

impl fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead(by) => write!(f, "{:.1} s ahead of", by.as_secs_f64()),
            Self::Behind(by) => write!(f, "{:.1} s behind", by.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000 * seconds)
    }

    fn exactly(seconds: u64) -> ServerTime {
        ServerTime { at: at(seconds), precision: Duration::ZERO }
    }

    #[test]
    fn the_length_of_the_call_is_no_offset() {
        assert_eq!(
            ClockOffset::measure(at(10), exactly(15), at(20)),
            ClockOffset::Behind(Duration::ZERO)
        );
        assert_eq!(
            ClockOffset::measure(at(10), exactly(22), at(20)),
            ClockOffset::Behind(2 * SECOND)
        );
        assert_eq!(
            ClockOffset::measure(at(10), exactly(7), at(20)),
            ClockOffset::Ahead(3 * SECOND)
        );
    }

    #[test]
    fn a_coarse_clock_gets_the_benefit_of_its_precision() {
        let server = ServerTime { at: at(7), precision: SECOND };
        assert_eq!(ClockOffset::measure(at(10), server, at(10)), ClockOffset::Ahead(2 * SECOND));
        assert_eq!(ClockOffset::measure(at(8), server, at(8)), ClockOffset::Behind(Duration::ZERO));
    }

    #[test]
    fn five_seconds_are_tolerated() {
        assert!(!ClockOffset::Ahead(MAX_CLOCK_OFFSET).is_too_far());
        assert!(ClockOffset::Behind(MAX_CLOCK_OFFSET + SECOND / 1_000).is_too_far());
        assert_eq!(ClockOffset::Ahead(3600 * SECOND).to_string(), "3600.0 s ahead of");
    }
}
