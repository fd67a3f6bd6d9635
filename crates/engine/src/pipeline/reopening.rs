//! When a named key opens its failed claim again, for the answers that promise it. The store decides it, see
//! `decisions/reopen.rs` of the crate `stores`.

use std::time::Duration;

use domain::{
    claim::Claim,
    site::{AfterFailure, PageUrl},
    time::Timestamp,
};

use crate::{Engine, EngineConfig};

/// How long after a failure a named key opens the work again; `None`: it replays the failure as long as it is kept.
pub(super) fn window(after_failure: AfterFailure, config: &EngineConfig) -> Option<Duration> {
    match after_failure {
        AfterFailure::Reopen => Some(config.failure_window),
        AfterFailure::Replay => None,
    }
}

impl Engine {
    /// When the claim's own key opens it again, if it failed or lapsed. `None`: its key replays the end, or it has no key of
    /// its own, or its page is no longer declared.
    pub fn reopens_at(&self, claim: &Claim) -> Option<Timestamp> {
        if !claim.has_named_key() {
            return None;
        }
        let after_failure = match &claim.pageurl {
            Some(page) => {
                let page = PageUrl::parse(page).ok()?;
                let declared = self.0.declarations();
                declared.site(&page, self.0.now()).ok()?.after_failure
            }
            None => AfterFailure::default(),
        };
        claim.reopens_at(window(after_failure, &self.0.config))
    }
}
