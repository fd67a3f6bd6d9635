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
        let mut last = self.last.lock().await;
        match &*last {
            Some(cached) if cached.key == key && self.clock.now().since(cached.at) < FRESH => {
                cached.answer.clone()
            }
            Some(_) | None => {
                let answer = fetch.await;
                *last = Some(CachedBalance { at: self.clock.now(), key, answer: answer.clone() });
                answer
            }
        }
    }
}
