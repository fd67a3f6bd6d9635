//! Whether the provider answers for several tasks in one call. The gateway finds out once, remembers it in the store, and
//! leaves out kinds whose answers cannot be separated.

use std::{collections::BTreeSet, time::Duration};

use domain::{challenge::Kind, time::Timestamp};
use parking_lot::Mutex;

use crate::Shared;

#[derive(Debug, Default)]
pub(crate) struct BatchSupport(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The provider refused a batch poll; none is tried before then.
    refused_until: Option<Timestamp>,
    /// Kinds whose answers contain the separator.
    inseparable: BTreeSet<Kind>,
}

/// A provider that refused a batch poll is tried again after this.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
const MAX_INSEPARABLE: usize = 256;
const MEMO: &str = "together/refused_until";

/// Whether tasks of the kind are polled in batches. A provider that calls back is hardly polled at all.
pub(crate) fn is_enabled(shared: &Shared, kind: &Kind, now: Timestamp) -> bool {
    shared.config.polling.allows_batches()
        && shared.config.batches
        && !shared.config.pingback
        && shared.poller.batches.covers(kind, now)
}

/// The provider does not support batch polls.
pub(super) async fn record_refusal(shared: &Shared) {
    let until = shared.now().plus(REMEMBERED);
    tracing::info!(%until, "provider does not support batch polls");
    shared.poller.batches.refuse(until);
    let memo = until.millis().to_string().into_bytes();
    if let Err(error) = shared.ports.store.set_memo(MEMO, memo).await {
        tracing::warn!(%error, "failed to persist batch-poll support, it will be probed again after a restart");
    }
}

/// Loads what an earlier process found out.
pub(crate) async fn load(shared: &Shared) {
    let Ok(memos) = shared.ports.store.memos(MEMO).await else { return };
    let until = memos.first().and_then(|(_, bytes)| str::from_utf8(bytes).ok()?.parse().ok());
    if let Some(until) = until {
        shared.poller.batches.refuse(Timestamp::from_millis(until));
    }
}

impl BatchSupport {
    fn covers(&self, kind: &Kind, now: Timestamp) -> bool {
        let state = self.0.lock();
        state.refused_until.is_none_or(|until| now >= until) && !state.inseparable.contains(kind)
    }

    fn refuse(&self, until: Timestamp) {
        self.0.lock().refused_until = Some(until);
    }

    pub(super) fn exclude(&self, kind: Kind) {
        let mut state = self.0.lock();
        if state.inseparable.len() < MAX_INSEPARABLE {
            state.inseparable.insert(kind);
        }
    }
}
