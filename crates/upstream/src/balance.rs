//! Caches the balance, because the provider counts these calls and bans clients that make too many.

use std::{sync::Arc, time::Duration};

use domain::{
    money::Money,
    ports::{Clock, Fault},
    secret::Secret,
    time::Timestamp,
};
use tokio::sync::Mutex;

/// A fault is cached as well: five requests with a wrong key get our address banned.
const FRESH: Duration = Duration::from_secs(30);

pub(crate) struct BalanceCache {
    last: Mutex<Option<CachedBalance>>,
    clock: Arc<dyn Clock>,
}

struct CachedBalance {
    at: Timestamp,
    /// What is known by one key says nothing about another.
    key: Secret,
    answer: Result<Money, Fault>,
}

// === impl BalanceCache ===

impl BalanceCache {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { last: Mutex::default(), clock }
    }

    /// The cached result for this key while it is fresh, otherwise that of `fetch`. Concurrent callers share one request.
    pub(crate) async fn get(
        &self,
        key: Secret,
        fetch: impl Future<Output = Result<Money, Fault>>,
    ) -> Result<Money, Fault> {
        self.get_unless(key, fetch, |_| false).await
    }

    /// Like [`BalanceCache::get`], without a balance of before this call. A fault is still cached.
    pub(crate) async fn get_fresh(
        &self,
        key: Secret,
        fetch: impl Future<Output = Result<Money, Fault>>,
    ) -> Result<Money, Fault> {
        self.get_unless(key, fetch, |cached| cached.answer.is_ok()).await
    }

    async fn get_unless(
        &self,
        key: Secret,
        fetch: impl Future<Output = Result<Money, Fault>>,
        is_stale: impl Fn(&CachedBalance) -> bool,
    ) -> Result<Money, Fault> {
        let mut last = self.last.lock().await;
        let is_fresh = |cached: &&CachedBalance| {
            cached.key == key && self.clock.now().since(cached.at) < FRESH && !is_stale(cached)
        };
        if let Some(cached) = last.as_ref().filter(is_fresh) {
            return cached.answer.clone();
        }
        let answer = fetch.await;
        *last = Some(CachedBalance { at: self.clock.now(), key, answer: answer.clone() });
        answer
    }
}
