//! The `Clock` port in production. It reads the wall clock once at start and then uses a monotonic clock that also counts while
//! the machine is suspended, so that a stepped system clock neither expires tokens nor makes expired ones valid. A gateway
//! that is behind its store's server catches up with the wall clock.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use domain::{ports::Clock, time::Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// Wall time at start plus the monotonic time since.
pub struct SystemClock {
    /// The wall time of the moment when the monotonic clock was zero, in milliseconds.
    boot: AtomicU64,
}

/// Counts while the machine sleeps. On other systems than Linux the monotonic clock may do so or not.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const MONOTONIC: ClockId = ClockId::Monotonic;

impl SystemClock {
    pub fn start() -> Self {
        Self::start_after(Timestamp::default())
    }

    /// Never starts before the latest time in a store of its own: with a wall clock that was set back between two runs, expired
    /// tokens would look valid. In a store that is shared, that time may be another gateway's mistake.
    pub fn start_after(seen: Timestamp) -> Self {
        Self { boot: AtomicU64::new(wall().max(seen).minus(uptime()).millis()) }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::default().plus(since_epoch)
}

fn uptime() -> Duration {
    let time = clock_gettime(MONOTONIC);
    let seconds = u64::try_from(time.tv_sec).expect("a monotonic clock starts at zero");
    let nanos = u32::try_from(time.tv_nsec).expect("nanoseconds are less than a second");
    Duration::new(seconds, nanos)
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.boot.load(Ordering::Relaxed)).plus(uptime())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    async fn sleep_until(&self, at: Timestamp) {
        // Timestamps are truncated to milliseconds, so without the extra one a sleeper could wake too early.
        let wait = at.since(self.now());
        if wait > Duration::ZERO {
            tokio::time::sleep(wait + Duration::from_millis(1)).await;
        }
    }

    fn catch_up(&self) {
        self.boot.fetch_max(wall().minus(uptime()).millis(), Ordering::Relaxed);
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock").field("boot", &self.boot).finish()
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

    #[test]
    fn a_clock_that_is_behind_catches_up_and_never_goes_back() {
        let clock = SystemClock::start();
        clock.boot.fetch_sub(3_600_000, Ordering::Relaxed);
        let before = clock.now();
        clock.catch_up();
        assert!(clock.now().since(before) >= Duration::from_secs(3_599));
        let ahead = SystemClock::start_after(clock.now().plus(Duration::from_secs(60)));
        let before = ahead.now();
        ahead.catch_up();
        assert!(ahead.now() >= before);
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
