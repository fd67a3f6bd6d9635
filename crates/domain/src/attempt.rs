//! How one submission of a solve failed.

use serde::{Deserialize, Serialize};

use crate::{money::Money, retry::Code, time::Timestamp};

/// A failed attempt. Their list is the cause chain of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Failure {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// When the gateway learned of it.
    pub at: Timestamp,
    /// The provider's code, or one of ours ([`own`](crate::retry::own)) where it has none.
    pub code: Code,
    /// The cost of the attempt; `None` when it is unknown.
    pub cost: Option<Money>,
}
