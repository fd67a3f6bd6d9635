//! Tells the ends of claims to their workers' own addresses: at least once, signed, again and again for a day. What is
//! under way when the process dies is tried again by the next.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use domain::{
    callback::{Callback, Notice},
    claim::{Claim, ClaimState, Delivery},
    ports::{Parcel, StoreError},
};
use futures_util::{StreamExt as _, stream::FuturesUnordered};

use crate::Inner;

/// So many are told at once: slow receivers hold up nobody but each other.
const MOST: usize = 32;
/// Without a hint, the outbox is looked into this often.
const EVERY: Duration = Duration::from_secs(1);

/// Runs until the driver is done.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut telling = FuturesUnordered::new();
    let mut look = true;
    loop {
        let room = MOST - telling.len();
        if look && room > 0 {
            let due = take(&inner, room).await;
            // A full lot says that there may be more.
            look = due.len() == room;
            telling.extend(due.into_iter().map(|callback| tell(&inner, callback)));
            if look && telling.len() < MOST {
                continue;
            }
        }
        tokio::select! {
            biased;
            Some(()) = telling.next(), if !telling.is_empty() => {}
            () = inner.outbox.notified() => look = true,
            more = inner.pause(EVERY) => {
                if !more {
                    return;
                }
                look = true;
            }
        }
    }
}

async fn take(inner: &Inner, limit: usize) -> Vec<Callback> {
    let result = inner.ports.store.callbacks(limit, inner.now()).await;
    inner.noted(&result);
    match result {
        Ok(callbacks) => {
            if !callbacks.is_empty() {
                inner.has_callbacks.store(true, Ordering::Relaxed);
            }
            callbacks
        }
        Err(error) => {
            tracing::error!(%error, "the outbox could not be read");
            Vec::new()
        }
    }
}

async fn tell(inner: &Inner, callback: Callback) {
    let claim = match find(inner, &callback).await {
        Ok(Some(claim)) if claim.state == callback.state => claim,
        // Another end took its place, and is told instead.
        Ok(Some(_) | None) => return,
        Err(error) => {
            tracing::error!(claim = %callback.claim, %error, "a callback could not be made");
            return;
        }
    };
    let parcel = Parcel {
        id: callback.message_id(),
        url: callback.url.expose().to_owned(),
        notice: Notice::of_claim(claim, inner.now()),
    };
    if let Err(why) = inner.ports.courier.tell(&parcel).await {
        let tries = callback.tries;
        tracing::warn!(claim = %callback.claim, tries, %why, next = %callback.due, "a callback was not taken");
        return;
    }
    if let Err(error) = inner.ports.store.called_back(&callback, inner.now()).await {
        tracing::error!(claim = %callback.claim, %error, "a callback was taken and will be told again");
    }
}

/// The claim, with its token counted as handed out.
async fn find(inner: &Inner, callback: &Callback) -> Result<Option<Claim>, StoreError> {
    if callback.state != ClaimState::Served {
        return inner.ports.store.find_claim(callback.claim).await;
    }
    let delivery = inner.ports.store.deliver(callback.claim, inner.now()).await?;
    Ok(delivery.map(|delivery| match delivery {
        Delivery::Token(claim) | Delivery::Expired(claim) | Delivery::Nothing(claim) => claim,
    }))
}
