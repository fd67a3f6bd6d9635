//! What one caller wants: one worker's right to one token.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    challenge::{Challenge, Kind},
    fingerprint::{Fingerprint, KeyHash},
    id::{ClaimId, Project, SolveId, WorkerName},
    money::Money,
    ports::Feedback,
    retry::Code,
    secret::Secret,
    solve::Policy,
    time::Timestamp,
    token::Token,
};

/// The HTTP surface a claim came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// `in.php` / `res.php`.
    Compat,
    /// The JSON API.
    V1,
    /// The command line, in process.
    Cli,
}

/// Where a claim stands. All but `Waiting` are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimState {
    /// No token yet.
    Waiting,
    /// A token was allotted to it.
    Served,
    /// Its solve was given up.
    Failed,
    /// The worker took it back.
    Withdrawn,
    /// Its deadline passed before a token came, or before the token was fetched.
    Lapsed,
}

/// Where a served claim's token came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A solve of its own.
    Upstream,
    /// The stock.
    Stock,
    /// The claim's own first answer, given again.
    Replay,
    /// A solve another claim had opened.
    Join,
}

/// One worker's right to one token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its name; what `in.php` answers.
    pub id: ClaimId,
    /// Whose it is.
    pub worker: WorkerName,
    /// What its cost is charged to.
    pub project: Project,
    /// How it came in.
    pub door: Door,
    /// The challenge's kind.
    pub kind: Kind,
    /// The challenge's site key.
    pub sitekey: Option<String>,
    /// The challenge's page, canonical.
    pub pageurl: Option<String>,
    /// Why solving for this page is allowed: the site's written basis.
    pub basis: Arc<str>,
    /// The challenge's identity.
    pub fingerprint: Fingerprint,
    /// The key it can be found by again.
    pub key: Option<KeyHash>,
    /// The solve it waits for or was served by; `None` when served from stock.
    pub solve: Option<SolveId>,
    /// Where it stands.
    pub state: ClaimState,
    /// Where its token came from.
    pub source: Option<Source>,
    /// When it was admitted.
    pub opened_at: Timestamp,
    /// When it lapses.
    pub deadline: Timestamp,
    /// When it reached its final state.
    pub ended_at: Option<Timestamp>,
    /// When its token was first handed out.
    pub delivered_at: Option<Timestamp>,
    /// The token allotted to it.
    pub token: Option<Token>,
    /// Why it failed or lapsed.
    pub code: Option<Code>,
    /// Attempts of its solve when it ended.
    pub attempts: u32,
    /// Polls of its solve when it ended.
    pub polls: u32,
    /// What its solve cost; `None` when nobody knows. A saving costs zero.
    pub cost: Option<Money>,
    /// Where to tell the worker about the end.
    pub callback_url: Option<Secret>,
    /// The dead letter it brings back: it is the next generation of that letter's claim.
    pub revives: Option<SolveId>,
    /// How its token fared, once the worker told.
    pub report: Option<Feedback>,
}

/// How a claim is recognised when it comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// The worker's own key: the same claim for at least a day.
    Named(KeyHash),
    /// Same parameters, same solve: while in flight and for `window` after, never past the token's life.
    Derived {
        /// Hash of worker and fingerprint.
        hash: KeyHash,
        /// How long after its end.
        window: Duration,
    },
    /// A claim of its own, whatever else is under way.
    Own,
}

/// What a worker may still open today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// New solves a day.
    pub solves_per_day: Option<u64>,
    /// Money a day, counted when a solve is opened at its listed price.
    pub cost_per_day: Option<Money>,
}

/// A claim about to be admitted.
#[derive(Clone, Debug)]
pub struct NewClaim {
    /// A fresh name for it.
    pub id: ClaimId,
    /// A fresh name for the solve, should one be opened.
    pub solve: SolveId,
    /// Whose it is.
    pub worker: WorkerName,
    /// What its cost is charged to.
    pub project: Project,
    /// How it came in.
    pub door: Door,
    /// What has to be solved.
    pub challenge: Arc<Challenge>,
    /// Its identity.
    pub fingerprint: Fingerprint,
    /// Why it is allowed.
    pub basis: Arc<str>,
    /// How it is recognised when it comes again.
    pub key: KeyRule,
    /// When it lapses.
    pub deadline: Timestamp,
    /// The listed price of a solve of this kind.
    pub price: Option<Money>,
    /// What the worker may still open today.
    pub allowance: Allowance,
    /// How its solve is to be treated.
    pub policy: Policy,
    /// The caller takes the token with this very answer: a stocked or replayed token counts as delivered.
    pub collect: bool,
    /// Where to tell the worker about the end.
    pub callback_url: Option<Secret>,
    /// A solve opened now brings nothing before then: a claim that lapses earlier is refused instead.
    pub soonest: Timestamp,
    /// The dead letter it brings back.
    pub revives: Option<SolveId>,
}

/// What became of an arriving claim.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The same key came before: this is that claim, as it stands.
    Replayed(Claim),
    /// Served at once from stock.
    Stocked(Claim),
    /// Waits for (or is served by) a solve another claim opened.
    Joined(Claim),
    /// A new solve was opened for it.
    Opened(Claim),
    /// The key belongs to a claim for another challenge. Nothing changed.
    Mismatch(ClaimId),
    /// The worker's allowance is used up until then. Nothing changed.
    OverBudget {
        /// Which limit.
        limit: &'static str,
        /// When it is renewed.
        until: Timestamp,
    },
    /// It would lapse before a solve opened now can bring anything. Nothing changed.
    TooLate,
    /// The drawn name is taken: draw again. Nothing changed.
    NameTaken,
}

/// What a fetch of a served claim's token gives.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// The claim with its token, which counts as handed out from now on.
    Token(Claim),
    /// The token has died (or was given back): it is not handed out any more.
    Expired(Claim),
    /// There is no token: the claim as it stands.
    Nothing(Claim),
}

impl ClaimState {
    /// Whether nothing can change it any more.
    pub fn is_final(self) -> bool {
        self != Self::Waiting
    }

    /// Its name in API and dashboard.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Served => "served",
            Self::Failed => "failed",
            Self::Withdrawn => "withdrawn",
            Self::Lapsed => "lapsed",
        }
    }
}

impl Source {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Stock => "stock",
            Self::Replay => "replay",
            Self::Join => "join",
        }
    }
}
