//! The receiver of the callbacks of a simulated world.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use domain::{
    callback::Notice,
    id::WorkerName,
    ports::{AddressRefused, Webhook, WebhookError, WebhookSender},
};

/// A callback receiver that may be down and records the callbacks it gets.
#[derive(Debug, Default)]
pub struct Receiver {
    pub is_down: AtomicBool,
    pub tried: Mutex<Vec<String>>,
    pub got: Mutex<Vec<(String, Notice)>>,
}

#[async_trait]
impl WebhookSender for Receiver {
    async fn check(&self, _: Option<&WorkerName>, _: &str) -> Result<(), AddressRefused> {
        Ok(())
    }

    async fn send(&self, webhook: &Webhook) -> Result<(), WebhookError> {
        self.tried.lock().unwrap().push(webhook.id.clone());
        if self.is_down.load(Ordering::SeqCst) {
            return Err(WebhookError("the receiver is down".into()));
        }
        self.got.lock().unwrap().push((webhook.id.clone(), webhook.notice.clone()));
        Ok(())
    }
}
