//! Delivers the ends of claims to their callback addresses: at least once, signed, with retries for a day. Deliveries that
//! are under way or queued when the process dies are tried again by the next one.
//!
//! The store hands callbacks out in the order they are due and puts each off to its next try. So that a dead receiver
//! does not delay all others, the outbox takes everything due at once and queues it per receiver. Ten thousand callbacks
//! that nobody accepts delay the others by two seconds: as long as reading them from the store takes.

mod receivers;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use domain::{
    callback::{Callback, Notice},
    claim::{Claim, ClaimState, Delivery},
    ports::{StoreError, Webhook},
};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::Notify;

use self::receivers::{DeliveryResult, ReceiverQueues};
use crate::Shared;

/// The hint that a claim with a callback may have ended.
#[derive(Debug, Default)]
pub(crate) struct OutboxHints {
    ended: Notify,
    /// Somebody uses callbacks, so every end of a claim is a hint.
    in_use: AtomicBool,
}

/// How many callbacks one read takes from the store.
const PAGE: usize = 500;
/// How many are taken within one [`EVERY`], because each costs the store a write.
const MAX_TAKEN: usize = 10 * PAGE;
/// Without a hint, the outbox is read this often.
const EVERY: Duration = Duration::from_secs(1);

/// Runs until the driver has stopped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut receivers = ReceiverQueues::default();
    let mut deliveries = FuturesUnordered::new();
    let (mut has_more, mut taken, mut began) = (true, 0, shared.now());
    loop {
        let now = shared.now();
        if now.since(began) >= EVERY {
            (has_more, taken, began) = (true, 0, now);
            receivers.drop_due(now.plus(EVERY));
        }
        if has_more && taken < MAX_TAKEN {
            let due = take_due(&shared).await;
            // After a full page there may be more.
            has_more = due.len() == PAGE;
            taken += due.len();
            queue(&mut receivers, due);
        }
        while let Some((receiver, callback)) = receivers.next() {
            deliveries.push(deliver(&shared, receiver, callback));
        }
        let wait = if has_more && taken < MAX_TAKEN { Duration::ZERO } else { EVERY };
        tokio::select! {
            biased;
            Some((receiver, end)) = deliveries.next() => receivers.finish(&receiver, end),
            () = shared.maintenance.outbox.ended.notified() => has_more = true,
            more = shared.pause(began.plus(wait).since(shared.now())) => if !more { return },
        }
    }
}

fn queue(receivers: &mut ReceiverQueues, due: Vec<Callback>) {
    let deferred =
        due.into_iter().map(|callback| receivers.push(callback)).filter(|kept| !kept).count();
    if deferred > 0 {
        tracing::warn!(deferred, "callback queue full, deferring to the next retry");
    }
}

async fn take_due(shared: &Shared) -> Vec<Callback> {
    let result = shared.ports.store.callbacks(PAGE, shared.now()).await;
    shared.record_store_health(&result);
    match result {
        Ok(callbacks) => {
            if !callbacks.is_empty() {
                shared.maintenance.outbox.in_use.store(true, Ordering::Relaxed);
            }
            callbacks
        }
        Err(error) => {
            tracing::error!(%error, "failed to read the callback outbox");
            Vec::new()
        }
    }
}

async fn deliver(
    shared: &Shared,
    receiver: String,
    callback: Callback,
) -> (String, DeliveryResult) {
    let end = deliver_once(shared, &callback).await;
    (receiver, end)
}

async fn deliver_once(shared: &Shared, callback: &Callback) -> DeliveryResult {
    let claim = match find(shared, callback).await {
        Ok(Some(claim)) if claim.state == callback.state => claim,
        // The claim has ended in another way since; that end has a callback of its own.
        Ok(Some(_) | None) => return DeliveryResult::Skipped,
        Err(error) => {
            tracing::error!(claim = %callback.claim, %error, "failed to build callback");
            return DeliveryResult::Skipped;
        }
    };
    let webhook = Webhook {
        id: callback.message_id(),
        url: callback.url.expose().to_owned(),
        notice: Notice::of_claim(claim, shared.now()),
    };
    if let Err(why) = shared.ports.webhooks.send(&webhook).await {
        let tries = callback.tries;
        tracing::warn!(claim = %callback.claim, tries, %why, next = %callback.due, "callback delivery failed, retrying with backoff");
        return DeliveryResult::Failed;
    }
    if let Err(error) = shared.ports.store.called_back(callback, shared.now()).await {
        tracing::error!(claim = %callback.claim, %error, "callback delivered but not recorded, it will be sent again");
    }
    DeliveryResult::Delivered
}

/// Reads the claim. A token that is sent along counts as handed out.
async fn find(shared: &Shared, callback: &Callback) -> Result<Option<Claim>, StoreError> {
    if callback.state != ClaimState::Served {
        return shared.ports.store.find_claim(callback.claim).await;
    }
    let delivery = shared.ports.store.deliver(callback.claim, shared.now()).await?;
    Ok(delivery.map(|delivery| match delivery {
        Delivery::Token(claim) | Delivery::Expired(claim) | Delivery::Nothing(claim) => claim,
    }))
}

// === impl OutboxHints ===

impl OutboxHints {
    /// A claim with a callback was admitted.
    pub(crate) fn record_use(&self) {
        self.in_use.store(true, Ordering::Relaxed);
        self.ended.notify_one();
    }

    /// Claims have ended; some of them may have a callback.
    pub(crate) fn record_end(&self) {
        if self.in_use.load(Ordering::Relaxed) {
            self.ended.notify_one();
        }
    }
}
