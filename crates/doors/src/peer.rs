//! What a request knows of the connection it came by: the address, what the guard saw, and whether we are closing.
//! Made by accept.rs for every connection, found by the layers and handlers among the request's extensions.

use std::{
    future,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

/// The connection a request came by. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Inner>);

/// What makes a request head unacceptable whatever it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Two readers could disagree where the request ends.
    Framing,
    /// More header bytes than allowed.
    HeadTooLarge,
}

/// Counts a request as under way while it lives.
pub(crate) struct Busy(Peer);

#[derive(Debug)]
struct Inner {
    address: IpAddr,
    fault: AtomicU8,
    started: AtomicU64,
    finished: AtomicU64,
    closing: watch::Receiver<bool>,
}

// === impl Peer ===

impl Peer {
    pub(crate) fn new(address: IpAddr, closing: watch::Receiver<bool>) -> Self {
        let zero = AtomicU64::default;
        let fault = AtomicU8::new(0);
        Self(Arc::new(Inner { address, fault, started: zero(), finished: zero(), closing }))
    }

    /// The address of the socket: headers that claim another one are not believed.
    pub(crate) fn address(&self) -> IpAddr {
        self.0.address
    }

    /// The connection carried something no request on it survives: also those already read are refused.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self.0.fault.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Fault::Framing),
            _ => Some(Fault::HeadTooLarge),
        }
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        let number = match fault {
            Fault::Framing => 1,
            Fault::HeadTooLarge => 2,
        };
        self.0.fault.store(number, Ordering::Release);
    }

    /// Marks a request as under way.
    pub(crate) fn busy(&self) -> Busy {
        self.0.started.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// (requests under way, requests finished).
    pub(crate) fn load(&self) -> (u64, u64) {
        let finished = self.0.finished.load(Ordering::Relaxed);
        (self.0.started.load(Ordering::Relaxed).saturating_sub(finished), finished)
    }

    /// Returns `grace` after the process began to stop: what is held back until then is answered as it stands.
    pub(crate) async fn last_call(&self, grace: Duration) {
        let mut closing = self.0.closing.clone();
        if closing.wait_for(|closing| *closing).await.is_err() {
            // The accept loop is gone without closing: a router used without it, as in tests.
            return future::pending().await;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the end of this process, not a claim's time"
        )]
        tokio::time::sleep(grace).await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.finished.fetch_add(1, Ordering::Relaxed);
    }
}
