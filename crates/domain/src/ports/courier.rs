//! Whoever tells others about an end or a trouble, outside of any request: callbacks and alerts.

use std::fmt;

use async_trait::async_trait;

use crate::callback::Notice;

/// Tells notices to addresses. Signs them, and refuses addresses that are not to be told anything.
#[async_trait]
pub trait Courier: fmt::Debug + Send + Sync + 'static {
    /// Whether the address may be told anything: its form, and what its name resolves to. A name that does not resolve
    /// now is no reason to refuse: telling checks again.
    async fn check(&self, url: &str) -> Result<(), AddressRefused>;

    /// Tells once. The address is checked again: what a name resolves to changes.
    async fn tell(&self, parcel: &Parcel) -> Result<(), NotTold>;
}

/// One notice and where it goes.
#[derive(Clone)]
pub struct Parcel {
    /// The same for every try, so that the receiver recognises what it has seen.
    pub id: String,
    /// Where it goes. Never logged: it may hold what its owner takes for a secret.
    pub url: String,
    /// What is told.
    pub notice: Notice,
}

/// The address is not told anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressRefused(pub String);

/// The receiver did not take the notice. Bounded, printable, without the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotTold(pub String);

/// Neither where it goes nor what is told.
impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Tells nobody anything: callbacks are not configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCourier;

#[async_trait]
impl Courier for NoCourier {
    async fn check(&self, _: &str) -> Result<(), AddressRefused> {
        Err(AddressRefused("callbacks are not configured; write [callbacks] secret".into()))
    }

    async fn tell(&self, _: &Parcel) -> Result<(), NotTold> {
        Err(NotTold("callbacks are not configured".into()))
    }
}
