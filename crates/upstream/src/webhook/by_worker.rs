//! Workers with callbacks of their own: their messages are signed with their own secret and go to their own hosts, so that
//! one team can neither read nor forge what is meant for another.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use domain::{
    id::WorkerName,
    ports::{AddressRefused, Webhook, WebhookError, WebhookSender},
};
use parking_lot::RwLock;

/// Chooses the sender by the worker.
#[derive(Debug)]
pub struct WebhooksByWorker {
    /// For alerts, and for the other workers.
    common: Arc<dyn WebhookSender>,
    own: RwLock<Senders>,
}

/// The senders of the workers that have one.
type Senders = BTreeMap<WorkerName, Arc<dyn WebhookSender>>;

// === impl WebhooksByWorker ===

impl WebhooksByWorker {
    /// Without senders of workers.
    pub fn new(common: Arc<dyn WebhookSender>) -> Self {
        Self { common, own: RwLock::default() }
    }

    /// Replaces the senders of the workers, all at once.
    pub fn replace(&self, own: Senders) {
        *self.own.write() = own;
    }

    fn sender(&self, worker: Option<&WorkerName>) -> Arc<dyn WebhookSender> {
        let own = self.own.read();
        Arc::clone(worker.and_then(|worker| own.get(worker)).unwrap_or(&self.common))
    }
}

#[async_trait]
impl WebhookSender for WebhooksByWorker {
    async fn check(&self, worker: Option<&WorkerName>, url: &str) -> Result<(), AddressRefused> {
        self.sender(worker).check(worker, url).await
    }

    async fn send(&self, webhook: &Webhook) -> Result<(), WebhookError> {
        self.sender(webhook.worker.as_ref()).send(webhook).await
    }
}
