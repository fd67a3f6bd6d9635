//! The balance, asked for rarely: the provider counts these calls and bans those who ask often.

use std::{fmt, sync::Arc, time::Duration};

use domain::{
    money::Money,
    ports::{Clock, Fault},
    time::Timestamp,
};
use tokio::sync::Mutex;

/// For so long the last answer stands, also a fault: a wrong key that is asked about five times bans the address.
const FRESH: Duration = Duration::from_secs(30);

/// The last answer about the balance.
pub(crate) struct Balance {
    last: Mutex<Option<(Timestamp, Result<Money, Fault>)>>,
    clock: Arc<dyn Clock>,
}

// === impl Balance ===

impl Balance {
    /// Nothing known yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { last: Mutex::default(), clock }
    }

    /// The last answer while it is fresh, otherwise a new one. Callers who come meanwhile wait for the same one.
    pub(crate) async fn get(
        &self,
        ask: impl Future<Output = Result<Money, Fault>>,
    ) -> Result<Money, Fault> {
        let mut last = self.last.lock().await;
        match &*last {
            Some((at, answer)) if self.clock.now().since(*at) < FRESH => answer.clone(),
            Some(_) | None => {
                let answer = ask.await;
                *last = Some((self.clock.now(), answer.clone()));
                answer
            }
        }
    }
}

impl fmt::Debug for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balance").finish_non_exhaustive()
    }
}
