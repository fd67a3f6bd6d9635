//! Tells the ends of claims to their workers' own addresses: at least once, signed, again and again for a day. What is
//! under way or waits in memory when the process dies is tried again by the next.
//!
//! The store hands callbacks out in the order they are due, whoever they are for, and puts each off to its next try. So
//! that one dead receiver does not stand before all others, everything due is taken at once and waits here in the line of
//! its own receiver. Ten thousand callbacks that nobody takes hold up the others for two seconds: as long as taking them
//! out of the store's order lasts.

mod receivers;

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

use self::receivers::{End, Receivers};
use crate::Inner;

/// So many are taken from the store in one step.
const LOT: usize = 500;
/// So many within one [`EVERY`]: each costs the store a write.
const MOST_TAKEN: usize = 10 * LOT;
/// Without a hint, the outbox is looked into this often.
const EVERY: Duration = Duration::from_secs(1);

/// Runs until the driver is done.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut receivers = Receivers::default();
    let mut telling = FuturesUnordered::new();
    let (mut look, mut taken, mut began) = (true, 0, inner.now());
    loop {
        let now = inner.now();
        if now.since(began) >= EVERY {
            (look, taken, began) = (true, 0, now);
            receivers.forget(now.plus(EVERY));
        }
        if look && taken < MOST_TAKEN {
            let due = take(&inner, LOT).await;
            // A full lot says that there may be more.
            look = due.len() == LOT;
            taken += due.len();
            keep(&mut receivers, due);
        }
        while let Some((receiver, callback)) = receivers.next() {
            telling.push(tell(&inner, receiver, callback));
        }
        let wait = if look && taken < MOST_TAKEN { Duration::ZERO } else { EVERY };
        tokio::select! {
            biased;
            Some((receiver, end)) = telling.next() => receivers.ended(&receiver, end),
            () = inner.outbox.notified() => look = true,
            more = inner.pause(began.plus(wait).since(inner.now())) => if !more { return },
        }
    }
}

fn keep(receivers: &mut Receivers, due: Vec<Callback>) {
    let put_off =
        due.into_iter().map(|callback| receivers.put(callback)).filter(|kept| !kept).count();
    if put_off > 0 {
        tracing::warn!(put_off, "callback queue full, deferring to the next retry");
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
            tracing::error!(%error, "failed to read the callback outbox");
            Vec::new()
        }
    }
}

async fn tell(inner: &Inner, receiver: String, callback: Callback) -> (String, End) {
    let end = tell_once(inner, &callback).await;
    (receiver, end)
}

async fn tell_once(inner: &Inner, callback: &Callback) -> End {
    let claim = match find(inner, callback).await {
        Ok(Some(claim)) if claim.state == callback.state => claim,
        // Another end took its place, and is told instead.
        Ok(Some(_) | None) => return End::Nothing,
        Err(error) => {
            tracing::error!(claim = %callback.claim, %error, "failed to build callback");
            return End::Nothing;
        }
    };
    let parcel = Parcel {
        id: callback.message_id(),
        url: callback.url.expose().to_owned(),
        notice: Notice::of_claim(claim, inner.now()),
    };
    if let Err(why) = inner.ports.courier.tell(&parcel).await {
        let tries = callback.tries;
        tracing::warn!(claim = %callback.claim, tries, %why, next = %callback.due, "callback delivery failed, retrying with backoff");
        return End::NotTaken;
    }
    if let Err(error) = inner.ports.store.called_back(callback, inner.now()).await {
        tracing::error!(claim = %callback.claim, %error, "callback delivered but not recorded, it will be sent again");
    }
    End::Taken
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
