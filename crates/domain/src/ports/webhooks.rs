//! Outgoing webhooks: callbacks to workers and alerts to the operator, outside of any request.

use std::fmt;

use async_trait::async_trait;

use crate::{callback::Notice, id::WorkerName};

/// Signs webhooks and sends them. Refuses URLs that point into networks the operator did not allow.
#[async_trait]
pub trait WebhookSender: fmt::Debug + Send + Sync + 'static {
    /// Checks the form of a URL and the addresses its host resolves to: the URL of a worker's callback, or without a worker
    /// that of the operator's alerts. A host that does not resolve now passes, because [`send`](Self::send) checks again.
    async fn check(&self, worker: Option<&WorkerName>, url: &str) -> Result<(), AddressRefused>;

    /// Sends once. Checks the addresses again, because a name can resolve to something else by now.
    async fn send(&self, webhook: &Webhook) -> Result<(), WebhookError>;
}

/// One notice and its receiver.
#[derive(Clone)]
pub struct Webhook {
    /// The worker whose callback it is; `None` for an alert.
    pub worker: Option<WorkerName>,
    /// The same for every retry, so that the receiver can drop duplicates.
    pub id: String,
    /// The receiver. Never logged: its owner may have put a secret into it.
    pub url: String,
    /// The body, sent as JSON.
    pub notice: Notice,
}

/// Why no webhook may go to this URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressRefused(pub String);

/// Why the receiver did not accept the webhook. The text is bounded, printable and without the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WebhookError(pub String);

/// Shows neither the URL nor the body: both may hold secrets.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Refuses every URL: the sender of a gateway without `[callbacks]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWebhooks;

#[async_trait]
impl WebhookSender for NoWebhooks {
    async fn check(&self, _: Option<&WorkerName>, _: &str) -> Result<(), AddressRefused> {
        Err(AddressRefused("callbacks are not configured; set [callbacks] secret".into()))
    }

    async fn send(&self, _: &Webhook) -> Result<(), WebhookError> {
        Err(WebhookError("callbacks are not configured".into()))
    }
}
