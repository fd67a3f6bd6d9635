//! Persists what the polling schedule has learned about solve times, so that a restart does not lose it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::Shared;

const EVERY: Duration = Duration::from_secs(60);
const PREFIX: &str = "polling/";

/// Loads what an earlier process learned.
pub(crate) async fn load(shared: &Shared) {
    match shared.ports.store.memos(PREFIX).await {
        Ok(memos) => {
            for (name, bytes) in memos {
                shared.config.polling.memory.load(name.trim_start_matches(PREFIX), &bytes);
            }
        }
        Err(error) => {
            tracing::warn!(%error, "failed to load learned solve times, starting without them");
        }
    }
}

/// Saves what has changed, every minute and once more when the driver has stopped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut saved = BTreeMap::new();
    loop {
        let goes_on = shared.pause(EVERY).await;
        for (name, bytes) in shared.config.polling.memory.save() {
            if saved.get(&name) == Some(&bytes) {
                continue;
            }
            let memo = format!("{PREFIX}{name}");
            match shared.ports.store.set_memo(&memo, bytes.clone()).await {
                Ok(()) => drop(saved.insert(name, bytes)),
                Err(error) => tracing::warn!(%error, "failed to persist learned solve times"),
            }
        }
        if !goes_on {
            return;
        }
    }
}
