//! Counts attempts per address: wrong keys, and pingbacks. The map is bounded, so that counting cannot exhaust the memory.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use domain::time::Timestamp;
use parking_lot::Mutex;

use domain::actor::network_of;

/// Attempts by address, in windows of a minute.
#[derive(Debug)]
pub(crate) struct AttemptLimiter {
    max: u32,
    windows: Mutex<HashMap<IpAddr, Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    start: Timestamp,
    count: u32,
}

const WINDOW: Duration = Duration::from_secs(60);
const MAX_ADDRESSES: usize = 10_000;

impl AttemptLimiter {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, windows: Mutex::default() }
    }

    /// Whether the address has used up its attempts: `Err` with the rest of the window. Counts nothing.
    pub(crate) fn check(&self, address: IpAddr, now: Timestamp) -> Result<(), Duration> {
        let windows = self.windows.lock();
        let Some(window) = windows.get(&network_of(address)) else { return Ok(()) };
        let rest = WINDOW.saturating_sub(now.since(window.start));
        if window.count >= self.max && !rest.is_zero() { Err(rest) } else { Ok(()) }
    }

    /// Counts an attempt; `Err` with the rest of the window when there were too many.
    pub(crate) fn count(&self, address: IpAddr, now: Timestamp) -> Result<(), Duration> {
        let mut windows = self.windows.lock();
        if windows.len() >= MAX_ADDRESSES {
            windows.retain(|_, window| now.since(window.start) < WINDOW);
        }
        // Ten thousand addresses guess at once. Forgetting them allows each one another round of guesses.
        if windows.len() >= MAX_ADDRESSES {
            windows.clear();
        }
        let window = windows.entry(network_of(address)).or_insert(Window { start: now, count: 0 });
        if now.since(window.start) >= WINDOW {
            *window = Window { start: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        let rest = WINDOW.saturating_sub(now.since(window.start));
        if window.count > self.max { Err(rest) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eleventh_wrong_key_of_a_minute_is_too_many() {
        let limiter = AttemptLimiter::new(10);
        let start = Timestamp::from_millis(1_000_000);
        let here: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..10 {
            assert!(limiter.count(here, start).is_ok());
        }
        assert!(limiter.count(here, start).is_err());
        assert!(limiter.count("192.0.2.2".parse().unwrap(), start).is_ok());
        assert!(limiter.count(here, start.plus(WINDOW)).is_ok());
    }

    #[test]
    fn an_address_is_free_until_it_has_used_up_its_attempts() {
        let limiter = AttemptLimiter::new(2);
        let (start, here) = (Timestamp::from_millis(1_000_000), "192.0.2.1".parse().unwrap());
        assert!(limiter.check(here, start).is_ok() && limiter.count(here, start).is_ok());
        assert!(limiter.check(here, start).is_ok() && limiter.count(here, start).is_ok());
        assert_eq!(limiter.check(here, start), Err(WINDOW));
        assert!(limiter.check("192.0.2.2".parse().unwrap(), start).is_ok(), "others are free");
        assert!(limiter.check(here, start.plus(WINDOW)).is_ok());
    }

    #[test]
    fn the_map_is_bounded() {
        let limiter = AttemptLimiter::new(10);
        for n in 0..30_000u32 {
            let address = IpAddr::V4(n.into());
            assert!(limiter.count(address, Timestamp::from_millis(5)).is_ok());
        }
        assert!(limiter.windows.lock().len() <= MAX_ADDRESSES);
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let limiter = AttemptLimiter::new(1);
        let now = Timestamp::default();
        assert!(limiter.count("2001:db8::1".parse().unwrap(), now).is_ok());
        assert!(limiter.count("2001:db8::2".parse().unwrap(), now).is_err());
        assert!(limiter.count("2001:db8:0:1::1".parse().unwrap(), now).is_ok());
    }
}
