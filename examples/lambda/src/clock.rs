//! Time in a container that is frozen between invocations. A monotonic clock may stand still meanwhile, so this one
//! reads the wall clock every time, and never goes back.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use domain::{ports::Clock, time::Timestamp};

/// Wall time that never goes back.
#[derive(Debug, Default)]
pub struct WallClock {
    latest: AtomicU64,
}

#[async_trait]
impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let now = Timestamp::default().plus(since_epoch).millis();
        Timestamp::from_millis(self.latest.fetch_max(now, Ordering::SeqCst).max(now))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    async fn sleep_until(&self, at: Timestamp) {
        let wait = at.since(self.now());
        if wait > Duration::ZERO {
            tokio::time::sleep(wait + Duration::from_millis(1)).await;
        }
    }
}
