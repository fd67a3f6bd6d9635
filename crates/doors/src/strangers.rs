//! Bounds the memory that callers without a key can take: the bytes of forms whose key has not come yet, in total, per
//! network and per connection. Networks that have shown a valid key have a share of their own, which strangers cannot use up.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use domain::{actor::network_of, time::Timestamp};
use parking_lot::Mutex;

use crate::{Doors, limits::Limits, peer::Peer};

#[derive(Debug)]
pub(crate) struct Strangers {
    limits: Limits,
    held: Mutex<Held>,
    known: Mutex<HashMap<IpAddr, Timestamp>>,
}

/// Bytes held for forms without a key so far.
#[derive(Debug, Default)]
struct Held {
    by_share: [usize; 2],
    by_network: HashMap<IpAddr, usize>,
}

/// Whose bytes are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Strangers,
    /// Networks that have shown a valid key.
    Known,
}

/// A form whose key has not come yet. Dropping it gives its bytes back.
#[derive(Debug)]
pub(crate) struct StrangerForm {
    doors: Doors,
    network: IpAddr,
    share: Share,
    bytes: usize,
    peer: Option<Peer>,
}

/// Callers without a key hold as much as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyStrangers;

/// How long a network counts as known after it has shown a valid key.
const KNOWN_FOR: Duration = Duration::from_secs(60 * 60);
const MAX_KNOWN: usize = 10_000;

// === impl Strangers ===

impl Strangers {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, held: Mutex::default(), known: Mutex::default() }
    }

    /// Notes that a valid key came from this address.
    pub(crate) fn note_known(&self, address: IpAddr, now: Timestamp) {
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, at| now.since(*at) < KNOWN_FOR);
        }
        // Only holders of a key get here, so ten thousand networks an hour are no attack. The others keep their place.
        if known.len() < MAX_KNOWN {
            known.insert(network_of(address), now);
        }
    }

    /// Whether a valid key came from this address lately.
    pub(crate) fn is_known(&self, address: IpAddr, now: Timestamp) -> bool {
        let known = self.known.lock();
        known.get(&network_of(address)).is_some_and(|at| now.since(*at) < KNOWN_FOR)
    }

    fn take(&self, network: IpAddr, share: Share, bytes: usize) -> Result<(), TooManyStrangers> {
        let mut held = self.held.lock();
        let here = held.by_network.get(&network).copied().unwrap_or(0) + bytes;
        let all = held.by_share[share as usize] + bytes;
        let here_max = match share {
            Share::Strangers => self.limits.stranger_bytes_per_address,
            // Behind a proxy all workers have one address.
            Share::Known => self.limits.stranger_bytes,
        };
        if here > here_max || all > self.limits.stranger_bytes {
            return Err(TooManyStrangers);
        }
        held.by_share[share as usize] = all;
        held.by_network.insert(network, here);
        Ok(())
    }

    fn give_back(&self, network: IpAddr, share: Share, bytes: usize) {
        let mut held = self.held.lock();
        held.by_share[share as usize] -= bytes;
        if let Some(here) = held.by_network.get_mut(&network) {
            *here -= bytes;
            if *here == 0 {
                held.by_network.remove(&network);
            }
        }
    }
}

// === impl StrangerForm ===

impl StrangerForm {
    /// Refuses a connection that is sending many such forms already.
    pub(crate) fn begin(doors: &Doors, peer: Option<&Peer>) -> Result<Self, TooManyStrangers> {
        let address = Peer::address_of(peer);
        let is_known = doors.strangers().is_known(address, doors.now());
        let share = if is_known { Share::Known } else { Share::Strangers };
        if let Some(peer) = peer
            && !peer.begin_stranger_form(doors.limits().stranger_forms)
        {
            return Err(TooManyStrangers);
        }
        let network = network_of(address);
        Ok(Self { doors: doors.clone(), network, share, bytes: 0, peer: peer.cloned() })
    }

    /// Counts the bytes that have come so far.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), TooManyStrangers> {
        let more = bytes.saturating_sub(self.bytes);
        self.doors.strangers().take(self.network, self.share, more)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for StrangerForm {
    fn drop(&mut self) {
        self.doors.strangers().give_back(self.network, self.share, self.bytes);
        if let Some(peer) = &self.peer {
            peer.end_stranger_form();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { stranger_bytes: 100, stranger_bytes_per_address: 40, ..Limits::default() }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn bytes_are_bounded_per_network_and_in_total_and_come_back() {
        let strangers = Strangers::new(limits());
        let take = |network, bytes| strangers.take(address(network), Share::Strangers, bytes);
        assert!(take("192.0.2.1", 40).is_ok());
        assert!(take("192.0.2.1", 1).is_err(), "one network");
        assert!(take("192.0.2.2", 40).is_ok());
        assert!(take("192.0.2.3", 21).is_err(), "all together");
        strangers.give_back(address("192.0.2.1"), Share::Strangers, 40);
        assert!(take("192.0.2.3", 21).is_ok());
        assert_eq!(strangers.held.lock().by_network.len(), 2, "none is kept for nothing");
    }

    #[test]
    fn strangers_cannot_use_up_the_share_of_networks_with_a_key() {
        let strangers = Strangers::new(limits());
        let now = Timestamp::from_millis(1_000_000);
        strangers.note_known(address("2001:db8::1"), now);
        assert!(strangers.is_known(address("2001:db8::2"), now), "the same /64");
        assert!(!strangers.is_known(address("2001:db8:0:1::1"), now));
        assert!(!strangers.is_known(address("2001:db8::1"), now.plus(KNOWN_FOR)), "for a while");
        for host in 0..3u8 {
            let network = IpAddr::from([192, 0, 2, host]);
            strangers.take(network, Share::Strangers, 33).unwrap();
        }
        let known = network_of(address("2001:db8::1"));
        assert!(strangers.take(known, Share::Strangers, 10).is_err());
        assert!(strangers.take(known, Share::Known, 100).is_ok());
        assert!(strangers.take(known, Share::Known, 1).is_err(), "bounded too");
    }

    #[test]
    fn the_known_networks_are_bounded() {
        let strangers = Strangers::new(limits());
        let now = Timestamp::from_millis(1_000_000);
        for n in 0..10_100u32 {
            strangers.note_known(IpAddr::V4(n.into()), now);
        }
        assert_eq!(strangers.known.lock().len(), MAX_KNOWN);
        let later = now.plus(KNOWN_FOR);
        strangers.note_known(address("192.0.2.1"), later);
        assert!(strangers.is_known(address("192.0.2.1"), later));
    }
}
