//! Limits how many connections are open, in total and per network. Used by accept.rs.
//!
//! Connections that have shown no valid key cannot take all places: when the places are taken, a new connection displaces the
//! oldest of them. One that has shown a key is never displaced.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use domain::actor::network_of;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{limits::Limits, peer::Peer};

pub(crate) struct ConnectionLimiter {
    limits: Limits,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    taken: usize,
    by_network: HashMap<IpAddr, Network>,
    /// Oldest first. Those that have shown a key since are removed when they are found.
    strangers: BTreeMap<u64, Stranger>,
    next_number: u64,
}

#[derive(Default)]
struct Network {
    taken: usize,
    strangers: BTreeSet<u64>,
}

struct Stranger {
    peer: Peer,
    since: Instant,
}

/// Permission for one connection; dropping it makes room for another.
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    network: IpAddr,
    number: u64,
    /// Displaced connections have given back their place already.
    peer: Peer,
}

// === impl ConnectionLimiter ===

impl ConnectionLimiter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, places: Mutex::default() }
    }

    /// Gives the connection a place, if need be that of an older one.
    pub(crate) fn admit(self: &Arc<Self>, peer: &Peer) -> Option<ConnectionPermit> {
        let network = network_of(peer.address());
        let now = Instant::now();
        let mut places = self.places.lock();
        let here = places.by_network.get(&network).map_or(0, |network| network.taken);
        let displaced = if here >= self.limits.connections_per_address {
            Some(places.oldest_of(network)?)
        } else if places.taken >= self.limits.connections {
            Some(places.oldest()?)
        } else {
            None
        };
        if let Some(number) = displaced {
            places.displace(number, now, &self.limits)?;
        }
        let number = places.take(network, Stranger { peer: peer.clone(), since: now });
        let (limiter, peer) = (Arc::clone(self), peer.clone());
        Some(ConnectionPermit { limiter, network, number, peer })
    }
}

// === impl Places ===

impl Places {
    fn take(&mut self, network: IpAddr, stranger: Stranger) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.taken += 1;
        self.strangers.insert(number, stranger);
        let network = self.by_network.entry(network).or_default();
        network.taken += 1;
        network.strangers.insert(number);
        number
    }

    fn give_back(&mut self, network: IpAddr, number: u64) {
        self.taken -= 1;
        self.strangers.remove(&number);
        let here = self.by_network.get_mut(&network).expect("counted by `take`");
        here.taken -= 1;
        here.strangers.remove(&number);
        if here.taken == 0 {
            self.by_network.remove(&network);
        }
    }

    /// The oldest connection that has shown no key.
    fn oldest(&mut self) -> Option<u64> {
        loop {
            let (number, stranger) = self.strangers.first_key_value()?;
            let (number, network) = (*number, network_of(stranger.peer.address()));
            if !stranger.peer.has_shown_key() {
                return Some(number);
            }
            self.forget_stranger(network, number);
        }
    }

    fn oldest_of(&mut self, network: IpAddr) -> Option<u64> {
        loop {
            let number = *self.by_network.get(&network)?.strangers.first()?;
            if !self.strangers.get(&number)?.peer.has_shown_key() {
                return Some(number);
            }
            self.forget_stranger(network, number);
        }
    }

    /// It has shown a key, so it keeps its place.
    fn forget_stranger(&mut self, network: IpAddr, number: u64) {
        self.strangers.remove(&number);
        if let Some(network) = self.by_network.get_mut(&network) {
            network.strangers.remove(&number);
        }
    }

    /// Takes the place of a connection that had its time to show a key.
    fn displace(&mut self, number: u64, now: Instant, limits: &Limits) -> Option<()> {
        let stranger = self.strangers.get(&number)?;
        if now.duration_since(stranger.since) < limits.stranger_grace {
            return None;
        }
        let peer = stranger.peer.clone();
        self.give_back(network_of(peer.address()), number);
        peer.displace();
        Some(())
    }
}

// === impl ConnectionPermit ===

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut places = self.limiter.places.lock();
        if !self.peer.is_displaced() {
            places.give_back(self.network, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;

    use super::*;

    const HERE: &str = "127.0.0.1";

    fn limiter(stranger_grace: Duration) -> Arc<ConnectionLimiter> {
        let limits = Limits {
            connections: 3,
            connections_per_address: 2,
            stranger_grace,
            ..Limits::default()
        };
        Arc::new(ConnectionLimiter::new(limits))
    }

    fn peer(address: &str) -> Peer {
        Peer::new(address.parse().unwrap(), watch::channel(false).1)
    }

    #[test]
    fn permits_are_given_back() {
        let limiter = limiter(Duration::MAX);
        let admit = |address| limiter.admit(&peer(address));
        let (first, second) = (admit(HERE).unwrap(), admit(HERE).unwrap());
        assert!(admit(HERE).is_none(), "two from one address");
        let third = admit("::1").unwrap();
        assert!(admit("::1").is_none(), "three in all");
        drop(first);
        assert!(admit("::1").is_some());
        drop((second, third));
        let places = limiter.places.lock();
        assert!(places.taken == 0 && places.by_network.is_empty() && places.strangers.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let limiter = limiter(Duration::MAX);
        let admit = |address| limiter.admit(&peer(address));
        let places = (admit("2001:db8::1").unwrap(), admit("2001:db8::2").unwrap());
        assert!(admit("2001:db8::3").is_none());
        assert!(admit("2001:db8:0:1::3").is_some());
        drop(places);
    }

    #[test]
    fn the_oldest_without_a_key_is_displaced_and_one_with_a_key_never() {
        let limiter = limiter(Duration::ZERO);
        let (known, older, newer) = (peer(HERE), peer(HERE), peer(HERE));
        let permits = (limiter.admit(&known).unwrap(), limiter.admit(&older).unwrap());
        known.show_key();
        let newest = limiter.admit(&newer).unwrap();
        assert_eq!([&known, &older, &newer].map(Peer::is_displaced), [false, true, false]);
        newer.show_key();
        assert!(limiter.admit(&peer(HERE)).is_none(), "all have shown a key");
        drop((permits, newest));
        let places = limiter.places.lock();
        assert!(places.taken == 0 && places.by_network.is_empty() && places.strangers.is_empty());
    }

    #[test]
    fn when_all_places_are_taken_the_oldest_of_all_is_displaced() {
        let limiter = limiter(Duration::ZERO);
        let peers = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(peer);
        let permits = peers.each_ref().map(|peer| limiter.admit(peer).unwrap());
        assert_eq!(peers.each_ref().map(Peer::is_displaced), [true, false, false, false]);
        drop(permits);
        assert_eq!(limiter.places.lock().taken, 0);
    }
}
