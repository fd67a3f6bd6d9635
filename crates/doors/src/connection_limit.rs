//! Limits how many connections are open, in total and per address. Used by accept.rs.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;

use crate::limits::Limits;

pub(crate) struct ConnectionLimiter {
    limits: Limits,
    counts: Mutex<ConnectionCounts>,
}

#[derive(Default)]
struct ConnectionCounts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Permission for one connection; dropping it makes room for another.
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
}

// === impl ConnectionLimiter ===

impl ConnectionLimiter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, counts: Mutex::default() }
    }

    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let address = address.to_canonical();
        let mut counts = self.counts.lock();
        let here = counts.by_address.get(&address).copied().unwrap_or(0);
        let full =
            counts.total >= self.limits.connections || here >= self.limits.connections_per_address;
        if full {
            return None;
        }
        counts.total += 1;
        counts.by_address.insert(address, here + 1);
        Some(ConnectionPermit { limiter: Arc::clone(self), address })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.limiter.counts.lock();
        counts.total -= 1;
        let here = counts.by_address.get_mut(&self.address).expect("counted by `admit`");
        *here -= 1;
        if *here == 0 {
            counts.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_given_back() {
        let limits = Limits { connections: 3, connections_per_address: 2, ..Limits::default() };
        let limiter = Arc::new(ConnectionLimiter::new(limits));
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let there: IpAddr = "::1".parse().unwrap();
        let first = limiter.admit(here).unwrap();
        let second = limiter.admit(here).unwrap();
        assert!(limiter.admit(here).is_none(), "two from one address");
        let third = limiter.admit(there).unwrap();
        assert!(limiter.admit(there).is_none(), "three in all");
        drop(first);
        assert!(limiter.admit(there).is_some());
        drop((second, third));
        assert!(limiter.counts.lock().by_address.is_empty());
    }
}
