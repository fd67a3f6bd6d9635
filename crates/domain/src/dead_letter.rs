//! Solves that were given up, kept with their cause chain so that somebody can look into them and revive them.

use serde::{Deserialize, Serialize};

use crate::{
    attempt::Failure,
    challenge::Kind,
    id::{ClaimId, Project, SolveId, WorkerName},
    money::Money,
    retry::Code,
    time::Timestamp,
};

/// A solve that was given up.
///
/// Written in the transaction that fails the last claim of a solve, or in which a claim lapses before anything was paid for
/// it. Closed when it is revived or when its answer comes late. Opened again when the solve fails once more, or when its
/// revival lapsed before anything was paid for it. Deleted by a purge, or at the end of its retention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The id of the solve.
    pub id: SolveId,
    /// The claims that failed with it.
    pub claims: Vec<ClaimId>,
    /// The worker whose claim opened it.
    pub worker: WorkerName,
    /// The project its cost was charged to.
    pub project: Project,
    /// The kind of its challenge.
    pub kind: Kind,
    /// The challenge's site key.
    pub sitekey: Option<String>,
    /// The page of its challenge, canonical.
    pub pageurl: Option<String>,
    /// The code of the failure that ended it.
    pub code: Code,
    /// The number of attempts.
    pub attempts: u32,
    /// The failures of its attempts, in order.
    pub causes: Vec<Failure>,
    /// 1, and one more each time it was revived and failed again.
    pub generation: u32,
    /// The letter that was revived as this solve.
    pub revives: Option<SolveId>,
    /// The failures of earlier generations, in order; the last hundred.
    pub earlier: Vec<Failure>,
    /// The cost; `None` when it is unknown.
    pub cost: Option<Money>,
    /// When it was given up.
    pub died_at: Timestamp,
    /// Set once it is closed.
    pub closed: Option<Closed>,
    /// Whether something went wrong with the solve. Rows of releases before 0.2.0 end before this field.
    pub class: DeadLetterClass,
}

/// What a dead letter stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterClass {
    /// The solve failed, or its claims lapsed while an attempt may have been paid: somebody has to look at it.
    #[default]
    Failed,
    /// Its claims lapsed before anything was paid for it, and nothing is wrong with the solve: there was no slot, the account
    /// was in trouble, the provider was away, or submissions were paused. It can be revived when that is over.
    Lapsed,
}

/// How many failures of earlier generations a letter keeps.
const MOST_EARLIER: usize = 100;

impl DeadLetter {
    /// The failures of all generations so far, in order: the `earlier` of the next one.
    pub fn history(self) -> Vec<Failure> {
        let mut all = self.earlier;
        all.extend(self.causes);
        all.split_off(all.len().saturating_sub(MOST_EARLIER))
    }
}

impl DeadLetterClass {
    /// Every class.
    pub const ALL: [Self; 2] = [Self::Failed, Self::Lapsed];

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Lapsed => "lapsed",
        }
    }
}

/// How a dead letter was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// When it was closed.
    pub at: Timestamp,
    /// Whether it was revived or answered late.
    pub how: Closing,
    /// The claim that revived it.
    pub claim: Option<ClaimId>,
}

/// Why a dead letter was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// The answer came late, and its token went to stock.
    LateAnswer,
    /// Its claims were admitted again.
    Revived,
}
