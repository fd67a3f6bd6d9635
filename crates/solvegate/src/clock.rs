//! The `Clock` port in production. It reads the wall clock once at start and then uses monotonic time, so that a stepped system
//! clock neither expires tokens nor makes expired ones valid.

use std::{
    fmt,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use domain::{ports::Clock, time::Timestamp};

/// Wall time at start plus the monotonic time since.
pub struct SystemClock {
    started: Timestamp,
    origin: Instant,
}

impl SystemClock {
    pub fn start() -> Self {
        Self::start_after(Timestamp::default())
    }

    /// Never starts before the latest time in the store: with a wall clock that was set back between two runs, expired tokens
    /// would look valid.
    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    pub fn start_after(seen: Timestamp) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let started = Timestamp::default().plus(since_epoch).max(seen);
        Self { started, origin: Instant::now() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.started.plus(self.origin.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    async fn sleep_until(&self, at: Timestamp) {
        // Timestamps are truncated to milliseconds, so without the extra one a sleeper could wake too early.
        let wait = at.since(self.now());
        if wait > Duration::ZERO {
            tokio::time::sleep(wait + Duration::from_millis(1)).await;
        }
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock").field("started", &self.started).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_between_two_runs_goes_on_from_what_was_seen() {
        let tomorrow = SystemClock::start().now().plus(Duration::from_secs(86_400));
        assert!(SystemClock::start_after(tomorrow).now() >= tomorrow);
        let yesterday = tomorrow.minus(Duration::from_secs(2 * 86_400));
        assert!(SystemClock::start_after(yesterday).now() < tomorrow);
    }

    #[tokio::test]
    async fn a_sleeper_never_wakes_before_its_time() {
        let clock = SystemClock::start();
        for wait in [0, 1, 7] {
            let at = clock.now().plus(Duration::from_millis(wait));
            clock.sleep_until(at).await;
            assert!(clock.now() >= at);
        }
    }
}
