//! Hints that a claim changed. Losing one costs latency, never correctness.

use std::{fmt, future::Future, pin::Pin};

use crate::id::ClaimId;

/// Resolves when the bell rings. It listens from the moment it exists: listen, read, wait, read again.
pub type Ear = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Rings for claims.
pub trait Doorbell: fmt::Debug + Send + Sync + 'static {
    /// Something about the claim changed.
    fn ring(&self, claim: ClaimId);

    /// Starts to listen for the claim.
    fn listen(&self, claim: ClaimId) -> Ear;
}
