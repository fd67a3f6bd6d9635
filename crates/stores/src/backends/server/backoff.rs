//! Reconnecting with backoff. The delay doubles with every failure and is random, so that gateways do not reconnect in step.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    not_before: Option<Instant>,
}

const FIRST_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(2);

/// The error that callers get during a backoff.
pub(crate) const BACKING_OFF: &str = "connection failed, backing off before the next attempt";

impl Backoff {
    /// While backing off, callers fail fast instead of queueing behind the next connection attempt.
    pub(crate) fn is_waiting(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    pub(crate) fn failed(&mut self) {
        self.failures += 1;
        let delay = delay(self.failures);
        tracing::debug!(
            failures = self.failures,
            ?delay,
            "connection failed, reconnecting with backoff"
        );
        self.not_before = Some(Instant::now() + delay);
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Counts a failure and waits until the next attempt is due.
    pub(crate) async fn wait(&mut self) {
        self.failures += 1;
        tokio::time::sleep(delay(self.failures)).await;
    }
}

/// A random part of a delay that doubles with each failure.
pub(crate) fn delay(failures: u32) -> Duration {
    let longest = FIRST_DELAY.saturating_mul(1 << failures.min(10)).min(MAX_DELAY);
    longest.mul_f64(0.25 + 0.75 * fastrand::f64())
}
