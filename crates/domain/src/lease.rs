//! Which process may move a solve. Decisions need a lease with the current fence; facts do not.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    account_share::AccountUse, challenge::Challenge, id::HolderId, solve::Solve, time::Timestamp,
};

/// Rises with every change of holder, so that the store can refuse the decision of a process that lost its lease.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// A process's right to move one solve, with the solve as it was when the lease was taken.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The process that may move the solve.
    pub holder: HolderId,
    /// The fence of this lease.
    pub fence: Fence,
    /// The solve as the store had it.
    pub solve: Solve,
    /// The challenge of the solve, without its pictures: a queue of thousands must not hold them in memory. The process
    /// reads them with `Store::find_challenge` when it submits.
    pub challenge: Arc<Challenge>,
    /// The size of the challenge's pictures.
    pub file_bytes: usize,
}

/// A process and the end of its lease. One lease covers all its solves, so that renewing it is one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The id the process drew at its start.
    pub id: HolderId,
    /// Other processes take its solves over after this time, unless it renews.
    pub until: Timestamp,
    /// Its use of the account, if it shares the account's limits with the other processes of the store.
    pub account: Option<AccountUse>,
}

impl Holder {
    /// A process that shares no limits of the account.
    #[must_use]
    pub fn apart(id: HolderId, until: Timestamp) -> Self {
        Self { id, until, account: None }
    }
}

impl Lease {
    /// The lease of a solve that this holder has taken.
    #[must_use]
    pub fn new(holder: HolderId, solve: Solve, challenge: Arc<Challenge>) -> Self {
        let file_bytes = challenge.file_bytes();
        let challenge =
            if file_bytes == 0 { challenge } else { Arc::new(challenge.without_files()) };
        Self { holder, fence: solve.fence, solve, challenge, file_bytes }
    }
}

impl Fence {
    /// The fence of the next holder.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
