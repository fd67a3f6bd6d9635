//! Claim notifications between gateways. A notification wakes the waiters of this process at once and is queued for a publisher
//! task, which sends it to the server; the subscriber task wakes the waiters here for what other gateways publish.
//!
//! Notifications are only hints. A waiter also polls every second, so a late or lost notification costs at most that second.

use std::{fmt, sync::Arc};

use domain::{
    id::ClaimId,
    ports::{Notifier, Subscription},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
};

use crate::LocalNotifier;

/// Notifies the waiters of all gateways.
pub(crate) struct RemoteNotifier {
    local: Arc<LocalNotifier>,
    published: UnboundedSender<ClaimId>,
    subscriber: AbortHandle,
}

impl RemoteNotifier {
    /// Returns the notifier and the claims its publisher has to publish. When the notifier is dropped, the subscriber task is
    /// aborted and the publisher's channel closes.
    pub(crate) fn new(
        local: Arc<LocalNotifier>,
        subscriber: AbortHandle,
    ) -> (Self, UnboundedReceiver<ClaimId>) {
        let (published, claims) = unbounded_channel();
        (Self { local, published, subscriber }, claims)
    }
}

impl Drop for RemoteNotifier {
    fn drop(&mut self) {
        self.subscriber.abort();
    }
}

impl fmt::Debug for RemoteNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteNotifier").finish_non_exhaustive()
    }
}

impl Notifier for RemoteNotifier {
    fn notify(&self, claim: ClaimId) {
        self.local.notify(claim);
        if self.published.send(claim).is_err() {
            tracing::debug!("notification publisher stopped");
        }
    }

    fn subscribe(&self, claim: ClaimId) -> Subscription {
        self.local.subscribe(claim)
    }
}
