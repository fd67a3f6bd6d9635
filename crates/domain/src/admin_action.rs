//! What an admin can do to the gateway, as the audit trail names it. Written as `Event::Administered`, in the same
//! transaction as the change.

use serde::{Deserialize, Serialize};

use crate::{
    id::ClaimId,
    pause::PauseScope,
    pool::{Level, PoolId},
    time::Timestamp,
};

/// An action of an admin, or of a person with access to the machine. What it is about is in its entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of the changed record")]
pub enum AdminAction {
    /// A pool was opened or changed.
    PoolSet { pool: PoolId, level: Level, most: u32, waste: u32 },
    /// A pool was closed.
    PoolClosed { pool: PoolId },
    /// Demand was announced to a pool.
    Expected { pool: PoolId, count: u32, at: Timestamp },
    /// The claim was withdrawn.
    Withdrawn,
    /// The claim's token was reported.
    Reported { good: bool },
    /// The dead letter was revived; `claim` is the first of its next generation.
    Revived { claim: ClaimId },
    /// The dead letter was deleted.
    Purged,
    /// Submissions were paused.
    Paused { scope: PauseScope },
    /// Submissions were resumed.
    Resumed { scope: PauseScope },
    /// The configuration was read again. `more` counts the changes that are not listed.
    Reloaded { changes: Vec<ConfigChange>, more: u32 },
}

/// A change of the configuration. It has names only, never keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigChange {
    /// The part of the configuration.
    pub part: ConfigPart,
    /// The name of what changed: the rule of a site, the name of a worker or admin; empty where there is only one. For a
    /// change, the keys of the file that differ follow.
    pub name: String,
    /// What happened to it.
    pub change: Change,
}

/// A part of the configuration that a reload can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigPart {
    /// A declared site.
    Site,
    /// The declaration of pictures.
    Images,
    /// A worker.
    Worker,
    /// An admin.
    Admin,
    /// The key of the account at the provider.
    ProviderKey,
}

/// What happened to a part of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It is another one under the same name.
    Changed,
}

impl AdminAction {
    /// The name of the action in the API and on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PoolSet { .. } => "pool_set",
            Self::PoolClosed { .. } => "pool_closed",
            Self::Expected { .. } => "expected",
            Self::Withdrawn => "withdrawn",
            Self::Reported { .. } => "reported",
            Self::Revived { .. } => "revived",
            Self::Purged => "purged",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Reloaded { .. } => "reloaded",
        }
    }
}
