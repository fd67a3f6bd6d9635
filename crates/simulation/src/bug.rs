//! The planted bugs: a simulation that cannot find them proves nothing.

use std::{sync::Arc, time::Duration};

use domain::{
    claim::{Allowance, KeyRule, NewClaim},
    fingerprint::KeyHash,
    ports::RefillRequest,
    solve::Decision,
};

/// Bugs the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The gateway submits without a durable intent.
    NoIntent,
    /// A dead holder's intent is put back into the queue.
    LeaseEndAuthorises,
    /// The gateway drops the task id when it is busy.
    ForgetsTask,
    /// A lost reply counts as "not sent".
    LostMeansNotSent,
    /// Keys are ignored: equal challenges get the same token.
    IgnoresKeys,
    /// A token's lifetime restarts when it is stored, as in a list whose expiry every push extends.
    RenewsTokens,
    /// A failed poll counts as a task that ended.
    PollFaultEndsTask,
    /// A retry does not wait for its backoff.
    RetriesAtOnce,
    /// A callback leaves the outbox when it is tried, not when the receiver accepts it.
    DropsFailedCallbacks,
    /// The store drops a pause, for example as a row past its retention.
    ForgetsPauses,
    /// A gateway goes by the declarations that it was started with.
    KeepsDeclarations,
    /// A gateway does not know the budgets of the others' workers: nothing is limited.
    IgnoresBudgets,
    /// Further attempts of a solve are bought without a look at the budgets.
    RetriesBeyondBudgets,
    /// Pools order without a look at the budgets.
    OrdersBeyondBudgets,
    /// A key opens its claim again without waiting for the end of the failure window.
    ReopensAtOnce,
    /// A failure that may have been paid is forgotten: its key opens a claim of its own.
    ForgetsFailures,
}

impl Bug {
    /// Changes a decision on its way to the store.
    pub fn distort_decision(self, decision: Decision) -> Decision {
        match decision {
            Decision::Intend { guard, nonce } if self == Self::RetriesBeyondBudgets => {
                Decision::Intend { guard: guard.with_budgets(Arc::default()), nonce }
            }
            other => other,
        }
    }

    /// Changes an order of a pool on its way to the store.
    pub fn distort_order(self, order: RefillRequest) -> RefillRequest {
        let free = Allowance::default();
        match self {
            Self::OrdersBeyondBudgets => RefillRequest { budget: free, account: free, ..order },
            _ => order,
        }
    }

    /// Changes a claim on its way to the store.
    pub fn distort(self, claim: &mut NewClaim) {
        match self {
            Self::IgnoresKeys => {
                let hash = KeyHash::derived(&claim.worker, &claim.fingerprint);
                claim.key = KeyRule::Derived { hash, window: Duration::from_secs(60) };
            }
            Self::IgnoresBudgets => {
                (claim.allowance, claim.account) = (Allowance::default(), Allowance::default());
            }
            // Its intents come later, and are not written.
            Self::NoIntent => claim.start = None,
            Self::ReopensAtOnce => {
                claim.reopens_after = claim.reopens_after.map(|_| Duration::ZERO);
            }
            _ => {}
        }
    }
}
