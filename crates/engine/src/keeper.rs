//! Upkeep: one lease for the whole process, renewed at a third of its term, and the sweep that ends what is over.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use domain::{
    lease::Holder,
    money::Money,
    ports::{LeaseAsk, StoreError, SweepAsk, Swept},
    time::Timestamp,
};

use crate::Inner;

const SWEEP_EVERY: Duration = Duration::from_secs(1);
pub(crate) const SWEEP_LIMIT: usize = 500;
/// The provider is asked for its threads this often, and never more often than that.
const ASK_EVERY: Duration = Duration::from_secs(60);
const LEAST_ASK: Duration = Duration::from_secs(5);
/// With nothing to do it is asked seldom: questions count against what was submitted.
const ASK_IDLE: Duration = Duration::from_secs(600);

/// Renews the process's lease.
pub(crate) async fn renew(inner: &Inner) -> Result<(), StoreError> {
    let now = inner.now();
    let until = now.plus(LeaseAsk::TERM);
    let result = inner.ports.store.hold(Holder { id: inner.holder(), until }, now).await;
    inner.noted(&result);
    result?;
    inner.held_until.store(until.millis(), Ordering::SeqCst);
    Ok(())
}

/// Renews it again and again until the driver is done.
pub(crate) async fn keep(inner: Arc<Inner>) {
    while inner.pause(LeaseAsk::TERM / 3).await {
        if let Err(error) = renew(&inner).await {
            tracing::error!(%error, "failed to renew the gateway's lease");
        }
    }
}

const MEMORISE_EVERY: Duration = Duration::from_secs(60);
const POLLING: &str = "polling/";

/// Takes back what an earlier life learned about solve times.
pub(crate) async fn recall(inner: &Inner) {
    match inner.ports.store.memos(POLLING).await {
        Ok(memos) => {
            for (name, bytes) in memos {
                inner.config.polling.load(name.trim_start_matches(POLLING), &bytes);
            }
        }
        Err(error) => {
            tracing::warn!(%error, "failed to load learned solve times, starting without them");
        }
    }
}

/// Keeps what is learned about solve times, every minute and at the end.
pub(crate) async fn memorise(inner: Arc<Inner>) {
    let mut kept = BTreeMap::new();
    loop {
        let goes_on = inner.pause(MEMORISE_EVERY).await;
        for (name, bytes) in inner.config.polling.save() {
            if kept.get(&name) == Some(&bytes) {
                continue;
            }
            let memo = format!("{POLLING}{name}");
            match inner.ports.store.set_memo(&memo, bytes.clone()).await {
                Ok(()) => drop(kept.insert(name, bytes)),
                Err(error) => tracing::warn!(%error, "failed to persist learned solve times"),
            }
        }
        if !goes_on {
            return;
        }
    }
}

/// Asks the provider for its threads, at the start, every minute, and soon after a refusal for want of one.
pub(crate) async fn ask_threads(inner: Arc<Inner>) {
    loop {
        if ask_once(&inner).await {
            inner.wake.notify_one();
        }
        if !inner.pause(LEAST_ASK).await {
            return;
        }
        let idle = inner.places.used() + inner.health.queued() == 0;
        let every = match inner.places.limit() {
            0 => LEAST_ASK,
            _ if idle => ASK_IDLE,
            _ => ASK_EVERY,
        };
        tokio::select! {
            biased;
            () = inner.ask_threads.notified() => {}
            more = inner.pause(every) => if !more { return },
        }
    }
}

/// Asks the provider for its threads, unless one more question with a wrong key is one step nearer to a ban; whether it
/// was asked.
pub(crate) async fn ask_once(inner: &Inner) -> bool {
    if inner.breakers.account.is_open() {
        return false;
    }
    match inner.ports.provider.threads().await {
        Ok(threads) if threads.total > 0 => inner.places.told(threads),
        Ok(_) | Err(_) => inner.places.not_told(),
    }
    true
}

/// Ends what passed its deadline or expired, again and again.
pub(crate) async fn sweep(inner: Arc<Inner>) {
    while inner.pause(SWEEP_EVERY).await {
        if let Err(error) = sweep_once(&inner).await {
            tracing::error!(%error, "sweep failed");
        }
        inner.probe_when_idle().await;
    }
}

/// Ends what passed its deadline or expired, up to a limit.
pub(crate) async fn sweep_once(inner: &Inner) -> Result<Swept, StoreError> {
    let trouble = inner.breakers.account.code();
    let ask = SweepAsk { limit: SWEEP_LIMIT, trouble, history: inner.history() };
    let result = inner.ports.store.sweep(ask, inner.now()).await;
    inner.noted(&result);
    let swept = result?;
    inner.ring(swept.lapsed.iter().copied());
    Ok(swept)
}

impl Inner {
    /// With nothing queued no submission can probe the account: ask for its balance instead.
    async fn probe_when_idle(&self) {
        let account = &self.breakers.account;
        if self.health.queued() > 0 || !account.take_probe(self.now()) {
            return;
        }
        match self.ports.provider.balance().await {
            Ok(balance) if balance > Money::ZERO => account.close(self.now(), self.now()),
            Ok(_) | Err(_) => account.learned_nothing(self.now()),
        }
    }

    /// Waits; `false` when the driver is done and upkeep may end.
    pub(crate) async fn pause(&self, length: Duration) -> bool {
        let mut done = self.done.subscribe();
        let wake = self.now().plus(length);
        tokio::select! {
            biased;
            _ = done.wait_for(|done| *done) => false,
            () = self.ports.clock.sleep_until(wake) => true,
        }
    }

    /// Remembers whether the store answers, for `/readyz`.
    pub(crate) fn noted<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Ok(_) => self.health.store_answered(),
            Err(error) => self.health.store_failed(error),
        }
    }

    /// Whether our own lease still runs, as far as we know.
    pub(crate) fn holds_lease(&self, now: Timestamp) -> bool {
        now.millis() < self.held_until.load(Ordering::SeqCst)
    }
}
