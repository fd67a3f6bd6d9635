//! Limits a worker to its configured rates. A rate holds for all gateways together: each grants its share, and learns the
//! number of gateways with every renewal of its lease. While the store is unavailable the last number counts.

use std::time::Duration;

use domain::{
    rate::{Per, Rate},
    time::Timestamp,
};
use parking_lot::Mutex;

/// Enforces one rate, with the generic cell rate algorithm. Its share may change between two requests, because only the moment
/// of the next free permit is kept.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    rate: Rate,
    /// When all permits given so far are used up at the rate, in microseconds.
    used_up_at: Mutex<u64>,
}

// === impl RateLimiter ===

impl RateLimiter {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, used_up_at: Mutex::new(0) }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes one permit of this gateway's share, or returns how long to wait for the next.
    pub(crate) fn take(&self, now: Timestamp, gateways: usize) -> Result<(), Duration> {
        let count = u64::from(self.rate.count.get());
        let gateways = u64::try_from(gateways.max(1)).unwrap_or(u64::MAX);
        let interval = (self.period().saturating_mul(gateways) / count).max(1);
        let burst = count.div_ceil(gateways);
        let now = now.millis().saturating_mul(1000);
        let mut used_up_at = self.used_up_at.lock();
        let ahead = used_up_at.saturating_sub(now);
        let allowed = interval.saturating_mul(burst - 1);
        if ahead > allowed {
            return Err(Duration::from_micros(ahead - allowed));
        }
        *used_up_at = (*used_up_at).max(now).saturating_add(interval);
        Ok(())
    }

    /// In microseconds.
    fn period(&self) -> u64 {
        let seconds = match self.rate.per {
            Per::Second => 1,
            Per::Minute => 60,
            Per::Hour => 3600,
        };
        seconds * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_767_225_600_000 + millis)
    }

    /// How many of a request every millisecond are granted.
    fn granted(limiter: &RateLimiter, millis: std::ops::Range<u64>, gateways: usize) -> usize {
        millis.filter(|n| limiter.take(at(*n), gateways).is_ok()).count()
    }

    #[test]
    fn a_limiter_says_how_long_to_wait() {
        let limiter = RateLimiter::new("2/h".parse().unwrap());
        assert!(limiter.take(at(0), 1).is_ok());
        assert!(limiter.take(at(0), 1).is_ok());
        assert_eq!(limiter.take(at(0), 1), Err(Duration::from_secs(1800)));
        assert!(limiter.take(at(1_800_000), 1).is_ok());
    }

    #[test]
    fn a_rate_is_granted_as_a_burst_and_then_evenly() {
        let limiter = RateLimiter::new("20/s".parse().unwrap());
        assert_eq!(
            granted(&limiter, 0..1, 1) + (0..30).filter(|_| limiter.take(at(0), 1).is_ok()).count(),
            20
        );
        assert_eq!(granted(&limiter, 1..1001, 1), 20);
        assert_eq!(granted(&limiter, 1001..11_001, 1), 200);
    }

    #[test]
    fn three_gateways_together_grant_the_rate_once() {
        let limiters = [(); 3].map(|()| RateLimiter::new("30/s".parse().unwrap()));
        let burst =
            |limiter: &RateLimiter| (0..99).filter(|_| limiter.take(at(0), 3).is_ok()).count();
        assert_eq!(limiters.iter().map(burst).sum::<usize>(), 30);
        let rest = |limiter: &RateLimiter| granted(limiter, 1..10_001, 3);
        assert_eq!(limiters.iter().map(rest).sum::<usize>(), 300);
        let slow = [(); 3].map(|()| RateLimiter::new("1/h".parse().unwrap()));
        let day = |limiter: &RateLimiter| {
            (0..24 * 60).filter(|minute| limiter.take(at(minute * 60_000), 3).is_ok()).count()
        };
        assert_eq!(slow.iter().map(day).sum::<usize>(), 24);
    }

    #[test]
    fn a_share_follows_the_number_of_gateways() {
        let limiter = RateLimiter::new("100/s".parse().unwrap());
        assert_eq!((0..200).filter(|_| limiter.take(at(0), 1).is_ok()).count(), 100);
        assert_eq!(granted(&limiter, 1..1001, 1), 100);
        let half = granted(&limiter, 1001..3001, 2);
        assert!((50..=100).contains(&half), "{half}");
        assert_eq!(granted(&limiter, 3001..4001, 2), 50);
        assert_eq!(granted(&limiter, 4001..6001, 1), 200, "and no burst when a gateway leaves");
    }
}
