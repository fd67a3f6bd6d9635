//! Limits a worker to its configured rate.

use std::{fmt, sync::Arc, time::Duration};

use domain::rate::{Per, Rate};
use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};

/// Enforces a worker's rate. Clones share its state.
#[derive(Clone)]
pub(crate) struct ClaimRateLimiter(Arc<DefaultDirectRateLimiter>);

// === impl ClaimRateLimiter ===

impl ClaimRateLimiter {
    pub(crate) fn new(rate: Rate) -> Self {
        let quota = match rate.per {
            Per::Second => Quota::per_second(rate.count),
            Per::Minute => Quota::per_minute(rate.count),
            Per::Hour => Quota::per_hour(rate.count),
        };
        Self(Arc::new(RateLimiter::direct(quota)))
    }

    /// Takes one permit, or returns how long to wait for the next.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        self.0.check().map_err(|not_until| not_until.wait_time_from(DefaultClock::default().now()))
    }
}

impl fmt::Debug for ClaimRateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimRateLimiter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_says_how_long_to_wait() {
        let rate_limiter = ClaimRateLimiter::new("2/h".parse().unwrap());
        assert!(rate_limiter.take().is_ok());
        assert!(rate_limiter.take().is_ok());
        let wait = rate_limiter.take().unwrap_err();
        assert!(wait > Duration::from_secs(60) && wait <= Duration::from_secs(1800), "{wait:?}");
    }
}
