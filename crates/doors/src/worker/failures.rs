//! Wrong keys by address. The map is bounded, so that counting guesses cannot itself use up the memory.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Mutex,
    time::Duration,
};

use domain::time::Timestamp;

/// Wrong keys by address, in windows of a minute.
///
/// A right key is always let in, also from an address that has shown many wrong ones: behind a proxy one
/// misconfigured worker must not lock out all others, and 32 random characters cannot be guessed anyway. What is
/// bounded is the work and the noise that wrong keys make.
#[derive(Debug)]
pub(crate) struct Failures {
    most: u32,
    windows: Mutex<HashMap<IpAddr, Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    start: Timestamp,
    count: u32,
}

const WINDOW: Duration = Duration::from_secs(60);
const ADDRESSES_MAX: usize = 10_000;

impl Failures {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, windows: Mutex::default() }
    }

    /// Counts a wrong key; `Err` with the rest of the window when there were too many.
    pub(crate) fn count(&self, address: IpAddr, now: Timestamp) -> Result<(), Duration> {
        let mut windows = self.windows.lock().expect("no holder of this lock can panic");
        if windows.len() >= ADDRESSES_MAX {
            windows.retain(|_, window| now.since(window.start) < WINDOW);
        }
        // Still full: ten thousand addresses guess at once. Forgetting them costs a second round of guesses.
        if windows.len() >= ADDRESSES_MAX {
            windows.clear();
        }
        let window = windows.entry(block(address)).or_insert(Window { start: now, count: 0 });
        if now.since(window.start) >= WINDOW {
            *window = Window { start: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        let rest = WINDOW.saturating_sub(now.since(window.start));
        if window.count > self.most { Err(rest) } else { Ok(()) }
    }
}

/// One household of IPv6 is a /64; an IPv4 address in IPv6 clothes is itself.
fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eleventh_wrong_key_of_a_minute_is_too_many() {
        let failures = Failures::new(10);
        let start = Timestamp::from_millis(1_000_000);
        let here: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..10 {
            assert!(failures.count(here, start).is_ok());
        }
        assert!(failures.count(here, start).is_err());
        assert!(failures.count("192.0.2.2".parse().unwrap(), start).is_ok());
        assert!(failures.count(here, start.plus(WINDOW)).is_ok());
    }

    #[test]
    fn counting_never_holds_more_than_its_bound() {
        let failures = Failures::new(10);
        for n in 0..30_000u32 {
            let address = IpAddr::V4(n.into());
            assert!(failures.count(address, Timestamp::from_millis(5)).is_ok());
        }
        assert!(failures.windows.lock().unwrap().len() <= ADDRESSES_MAX);
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let failures = Failures::new(1);
        let now = Timestamp::default();
        assert!(failures.count("2001:db8::1".parse().unwrap(), now).is_ok());
        assert!(failures.count("2001:db8::2".parse().unwrap(), now).is_err());
        assert!(failures.count("2001:db8:0:1::1".parse().unwrap(), now).is_ok());
    }
}
