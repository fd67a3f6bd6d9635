//! Notifications that a claim changed, so that a caller who waits reads it again at once. They are hints: every waiting
//! caller also reads the claim on a timer, so a lost notification costs latency, never correctness.

use std::{fmt, future::Future, pin::Pin};

use crate::id::ClaimId;

/// Resolves at the first notification after [`Notifier::subscribe`] returned it.
pub type Subscription = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Publishes changes of claims, within this process and, where the backend can, to other gateways.
pub trait Notifier: fmt::Debug + Send + Sync + 'static {
    /// Publishes that the claim changed.
    fn notify(&self, claim: ClaimId);

    /// Subscribes to one claim. Subscribe first, then read the claim, then wait: a change between the read and the wait
    /// is then not missed.
    fn subscribe(&self, claim: ClaimId) -> Subscription;
}
