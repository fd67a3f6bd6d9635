//! Clocks: the wall clock for the server, and virtual time for deterministic runs.

use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use domain::{ports::Clock, time::Timestamp};

/// Wall time at start plus the monotonic time since.
#[derive(Debug)]
pub struct WallClock {
    start: Timestamp,
    since: Instant,
}

/// 2026-01-01 plus the time of tokio's clock, plus an offset. On a runtime with a paused clock, time passes only while every task
/// is waiting, and then jumps to the next timer.
#[derive(Debug)]
pub struct VirtualClock {
    start: tokio::time::Instant,
    offset: Duration,
}

const VIRTUAL_START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

// === impl WallClock ===

impl Default for WallClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the simulator's implementation of Clock"
    )]
    fn default() -> Self {
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(day.as_millis()).unwrap_or(u64::MAX);
        Self { start: Timestamp::from_millis(millis), since: Instant::now() }
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

#[expect(clippy::disallowed_methods, reason = "this is the simulator's implementation of Clock")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

// === impl VirtualClock ===

impl VirtualClock {
    /// Clocks with the same start and offset agree.
    pub fn new(start: tokio::time::Instant, offset: Duration) -> Self {
        Self { start, offset }
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        VIRTUAL_START.plus(self.start.elapsed()).plus(self.offset)
    }

    async fn sleep_until(&self, at: Timestamp) {
        // Timestamps are truncated to milliseconds, so round the sleep up.
        let left = at.since(self.now());
        tokio::time::sleep_until(tokio::time::Instant::now() + left).await;
    }
}
