//! When a named key opens its failed claim again, for the answers that promise it. The store decides it, see
//! `decisions/reopen.rs` of the crate `stores`.

use std::time::Duration;

use domain::{
    budget::BudgetBook,
    claim::Claim,
    retry::own,
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
    /// When the claim's own key opens it again, if it failed or lapsed; not before a used budget has room. `None`: its key replays the end, or it has no key of
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
        let at = claim.reopens_at(window(after_failure, &self.0.config))?;
        Some(self.room_again(claim).map_or(at, |room| room.max(at)))
    }

    /// When a claim that failed for lack of budget may find room again: with the next day or month of a limit in force.
    fn room_again(&self, claim: &Claim) -> Option<Timestamp> {
        if claim.code.as_ref()?.as_str() != own::BUDGET_EXCEEDED {
            return None;
        }
        let (budgets, day) = (self.0.budgets(), claim.ended_at?.day());
        let nothing_used = BudgetBook::default();
        let limits = [budgets.of_worker(&claim.worker), budgets.account];
        let limits = limits.iter().flat_map(|limit| limit.states(&nothing_used, day));
        limits.map(|state| state.resets_at).min()
    }
}
