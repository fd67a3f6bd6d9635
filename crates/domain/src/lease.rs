//! Who may move a solve. Decisions need a lease with the current fence; facts do not.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{challenge::Challenge, id::HolderId, solve::Solve, time::Timestamp};

/// Rises with every change of holder; a decision with an old fence is refused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// A holder's right to move one solve, with the solve as it was when the lease was taken.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Who holds it.
    pub holder: HolderId,
    /// The fence of this lease.
    pub fence: Fence,
    /// The solve as the store knew it.
    pub solve: Solve,
    /// What has to be solved.
    pub challenge: Arc<Challenge>,
}

/// One process and until when it is believed alive: one lease for all its solves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process's name in this life.
    pub id: HolderId,
    /// Alive until then unless renewed.
    pub until: Timestamp,
}

impl Fence {
    /// The next fence.
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
