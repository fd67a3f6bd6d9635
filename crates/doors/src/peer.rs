//! The connection of a request: its address, the fault the guard found, and whether the gateway is draining. accept.rs makes
//! one per connection and puts it into the extensions of each request.

use std::{
    future,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

/// The connection of a request. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Inner>);

/// Why a request head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadFault {
    /// Two parsers could disagree on where the request ends.
    Framing,
    HeadTooLarge,
}

/// Counts a request as under way until it is dropped.
pub(crate) struct InFlightRequest(Peer);

#[derive(Debug)]
struct Inner {
    address: IpAddr,
    fault: AtomicU8,
    started: AtomicU64,
    finished: AtomicU64,
    has_shown_key: AtomicBool,
    stranger_forms: AtomicU32,
    displaced: AtomicBool,
    is_secure: AtomicBool,
    displacing: Notify,
    closing: watch::Receiver<bool>,
}

// === impl Peer ===

impl Peer {
    pub(crate) fn new(address: IpAddr, closing: watch::Receiver<bool>) -> Self {
        Self(Arc::new(Inner {
            address,
            fault: AtomicU8::new(0),
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            has_shown_key: AtomicBool::new(false),
            stranger_forms: AtomicU32::new(0),
            displaced: AtomicBool::new(false),
            is_secure: AtomicBool::new(false),
            displacing: Notify::new(),
            closing,
        }))
    }

    /// The address of the socket; headers such as `Forwarded` are ignored.
    pub(crate) fn address(&self) -> IpAddr {
        self.0.address
    }

    /// The address, or an unspecified one when the router is used without the accept loop.
    pub(crate) fn address_of(peer: Option<&Self>) -> IpAddr {
        peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), Self::address)
    }

    /// The fault found on this connection. It refuses requests that were already read, too.
    pub(crate) fn fault(&self) -> Option<HeadFault> {
        match self.0.fault.load(Ordering::Acquire) {
            0 => None,
            1 => Some(HeadFault::Framing),
            _ => Some(HeadFault::HeadTooLarge),
        }
    }

    pub(crate) fn set_fault(&self, fault: HeadFault) {
        let number = match fault {
            HeadFault::Framing => 1,
            HeadFault::HeadTooLarge => 2,
        };
        self.0.fault.store(number, Ordering::Release);
    }

    /// Whether a request with a valid key came over this connection. It says nothing about other requests: a proxy may send
    /// those of several callers over one connection.
    pub(crate) fn has_shown_key(&self) -> bool {
        self.0.has_shown_key.load(Ordering::Relaxed)
    }

    /// Notes a valid key; `true` for the first one.
    pub(crate) fn show_key(&self) -> bool {
        !self.has_shown_key() && !self.0.has_shown_key.swap(true, Ordering::Relaxed)
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.0.is_secure.load(Ordering::Relaxed)
    }

    pub(crate) fn set_secure(&self) {
        self.0.is_secure.store(true, Ordering::Relaxed);
    }

    /// Closes this connection, because another one got its place.
    pub(crate) fn displace(&self) {
        self.0.displaced.store(true, Ordering::Release);
        self.0.displacing.notify_one();
    }

    pub(crate) fn is_displaced(&self) -> bool {
        self.0.displaced.load(Ordering::Acquire)
    }

    /// Returns when another connection got the place of this one.
    pub(crate) async fn displaced(&self) {
        self.0.displacing.notified().await;
    }

    /// Counts a form whose key has not come yet; `false` when this connection is sending `max` of them already.
    pub(crate) fn begin_stranger_form(&self, max: u32) -> bool {
        let next = |forms| (forms < max).then_some(forms + 1);
        self.0.stranger_forms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    pub(crate) fn end_stranger_form(&self) {
        self.0.stranger_forms.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn begin_request(&self) -> InFlightRequest {
        self.0.started.fetch_add(1, Ordering::Relaxed);
        InFlightRequest(self.clone())
    }

    /// (requests under way, requests finished).
    pub(crate) fn load(&self) -> (u64, u64) {
        let finished = self.0.finished.load(Ordering::Relaxed);
        (self.0.started.load(Ordering::Relaxed).saturating_sub(finished), finished)
    }

    /// Returns `grace` after the drain started: long polls then answer with the current state.
    pub(crate) async fn drain_deadline(&self, grace: Duration) {
        let mut closing = self.0.closing.clone();
        if closing.wait_for(|closing| *closing).await.is_err() {
            // There is no accept loop that could drain, as in tests that use the router alone.
            return future::pending().await;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the end of this process, not a claim's time"
        )]
        tokio::time::sleep(grace).await;
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.0.finished.fetch_add(1, Ordering::Relaxed);
    }
}
