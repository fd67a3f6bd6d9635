//! A solve we gave up on, kept with its whole cause chain.

use serde::{Deserialize, Serialize};

use crate::{
    attempt::Failure,
    challenge::Kind,
    id::{ClaimId, Project, SolveId, WorkerName},
    money::Money,
    retry::Code,
    time::Timestamp,
};

/// A solve we gave up on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The solve; also the letter's name.
    pub id: SolveId,
    /// Claims that failed with it.
    pub claims: Vec<ClaimId>,
    /// Whose it was.
    pub worker: WorkerName,
    /// What its cost was charged to.
    pub project: Project,
    /// The challenge's kind.
    pub kind: Kind,
    /// The challenge's site key.
    pub sitekey: Option<String>,
    /// The challenge's page.
    pub pageurl: Option<String>,
    /// Why it died.
    pub code: Code,
    /// Paid submissions.
    pub attempts: u32,
    /// Everything that went wrong, in order.
    pub causes: Vec<Failure>,
    /// 1, and one more each time it was brought back and failed again.
    pub generation: u32,
    /// The letter it was brought back from.
    pub revives: Option<SolveId>,
    /// What went wrong in earlier generations, in order; the last hundred.
    pub earlier: Vec<Failure>,
    /// What it cost; `None` when nobody knows.
    pub cost: Option<Money>,
    /// When it died.
    pub died_at: Timestamp,
    /// When and how it was closed.
    pub closed: Option<Closed>,
}

/// Earlier causes kept in a letter.
const MOST_EARLIER: usize = 100;

impl DeadLetter {
    /// Everything that went wrong up to now, in order: what the next generation has behind it.
    pub fn history(self) -> Vec<Failure> {
        let mut all = self.earlier;
        all.extend(self.causes);
        all.split_off(all.len().saturating_sub(MOST_EARLIER))
    }
}

/// How a dead letter was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// When.
    pub at: Timestamp,
    /// How.
    pub how: Closing,
    /// The claim it was brought back as.
    pub claim: Option<ClaimId>,
}

/// What closed a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// The answer came after all, and was banked.
    LateAnswer,
    /// It was brought back to work.
    Revived,
}
