//! One paid submission within a solve, and how it ended.

use serde::{Deserialize, Serialize};

use crate::{money::Money, retry::Code, time::Timestamp};

/// How an attempt failed: one link of a dead letter's cause chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Failure {
    /// Which attempt of the solve.
    pub attempt: u32,
    /// When we learned it.
    pub at: Timestamp,
    /// The provider's code, or our own for what has none (`NOT_SENT`, `AMBIGUOUS`, `DEADLINE` …).
    pub code: Code,
    /// What the attempt cost; `None` when nobody knows.
    pub cost: Option<Money>,
}
