//! Caches the balance, because the provider counts these calls and bans clients that make too many.

use std::{sync::Arc, time::Duration};

use domain::{
    money::Money,
    ports::{Clock, Fault},
    time::Timestamp,
};
use tokio::sync::Mutex;

/// A fault is cached as well: five requests with a wrong key get our address banned.
const FRESH: Duration = Duration::from_secs(30);

pub(crate) struct BalanceCache {
    last: Mutex<Option<(Timestamp, Result<Money, Fault>)>>,
    clock: Arc<dyn Clock>,
}

// === impl BalanceCache ===

impl BalanceCache {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { last: Mutex::default(), clock }
    }

    /// The cached result while it is fresh, otherwise that of `fetch`. Concurrent callers share one request.
    pub(crate) async fn get(
        &self,
        fetch: impl Future<Output = Result<Money, Fault>>,
    ) -> Result<Money, Fault> {
        let mut last = self.last.lock().await;
        match &*last {
            Some((at, answer)) if self.clock.now().since(*at) < FRESH => answer.clone(),
            Some(_) | None => {
                let answer = fetch.await;
                *last = Some((self.clock.now(), answer.clone()));
                answer
            }
        }
    }
}
