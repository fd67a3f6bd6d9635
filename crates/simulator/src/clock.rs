//! The wall clock, for the server. Deterministic runs hand in a clock of their own.

use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use domain::{ports::Clock, time::Timestamp};

/// The time of day at the start, carried on by a clock that never goes backwards.
#[derive(Debug)]
pub struct WallClock {
    start: Timestamp,
    since: Instant,
}

// === impl WallClock ===

impl WallClock {
    /// Reads the time of day once.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the simulator's implementation of Clock"
    )]
    pub fn new() -> Self {
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(day.as_millis()).unwrap_or(u64::MAX);
        Self { start: Timestamp::from_millis(millis), since: Instant::now() }
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        self.start.plus(self.since.elapsed())
    }

    async fn sleep_until(&self, at: Timestamp) {
        pause(at.since(self.now())).await;
    }
}

/// Real time passes.
#[expect(clippy::disallowed_methods, reason = "this is the simulator's implementation of Clock")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
