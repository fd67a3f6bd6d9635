//! Claims: a worker's request for one token, and the answers to it.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    budget::LimitReached,
    challenge::{Challenge, Kind},
    declarations::Guard,
    fingerprint::{Fingerprint, KeyHash},
    id::{ClaimId, HolderId, Nonce, Project, SolveId, WorkerName},
    lease::Lease,
    money::Money,
    ports::Feedback,
    retry::{Code, own},
    secret::Secret,
    solve::Policy,
    time::Timestamp,
    token::Token,
};

pub use crate::budget::Allowance;

/// The API a claim came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// `in.php` and `res.php`, the provider's own protocol.
    Compat,
    /// The JSON API under `/v1`.
    V1,
    /// The command line, in process.
    Cli,
}

/// Where a claim stands. An ended claim is deleted by the sweep at the end of its retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimState {
    /// Has no token yet.
    ///
    /// Entered when a claim opens or joins a solve. Left when its solve is ready or fails, when the worker withdraws it,
    /// or when the sweep finds its deadline passed.
    Waiting,
    /// Has a token.
    ///
    /// Entered at admission, when stock has a usable token, or when its solve is ready. Final once the token is
    /// delivered. Until then a withdrawal or the deadline gives the token back to stock and ends the claim as
    /// `Withdrawn` or `Lapsed`, and so does the end of the token's life.
    Served,
    /// Its solve failed. The solve has a dead letter. Final, until its worker's key opens the next generation.
    Failed,
    /// The worker withdrew it before the token was delivered. Final.
    Withdrawn,
    /// Its deadline passed before a token came, or before the token was fetched; or the token expired before anybody fetched
    /// it. Final, until its worker's key opens the next generation. If nothing was paid for it, its solve has a dead letter.
    Lapsed,
}

/// Where a served claim's token came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The solve the claim opened.
    Upstream,
    /// A token that was in stock.
    Stock,
    /// The answer of an earlier claim with the same key.
    Replay,
    /// A solve that another claim opened.
    Join,
}

/// A worker's request for one token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The id that `in.php` answers with.
    pub id: ClaimId,
    /// The worker that made it.
    pub worker: WorkerName,
    /// The project its cost is charged to.
    pub project: Project,
    /// The API it came through.
    pub door: Door,
    /// The kind of its challenge.
    pub kind: Kind,
    /// The challenge's site key.
    pub sitekey: Option<String>,
    /// The challenge's page, canonical.
    pub pageurl: Option<String>,
    /// Why solving for this page is allowed: the site's written basis.
    pub basis: Arc<str>,
    /// The fingerprint of its challenge.
    pub fingerprint: Fingerprint,
    /// The hash of the key that finds it again.
    pub key: Option<KeyHash>,
    /// The solve it waits for or was served by; `None` when served from stock.
    pub solve: Option<SolveId>,
    /// The state it is in.
    pub state: ClaimState,
    /// Where its token came from.
    pub source: Option<Source>,
    /// When it was admitted; for a later generation, when its key opened it again.
    pub opened_at: Timestamp,
    /// When it lapses without a fetched token.
    pub deadline: Timestamp,
    /// When it left `Waiting`.
    pub ended_at: Option<Timestamp>,
    /// When its token was first handed out.
    pub delivered_at: Option<Timestamp>,
    /// The token that belongs to it.
    pub token: Option<Token>,
    /// Why it failed or lapsed.
    pub code: Option<Code>,
    /// Attempts of its solve when it ended.
    pub attempts: u32,
    /// Polls of its solve when it ended.
    pub polls: u32,
    /// The cost of its solve; `None` when it is unknown. A claim that needed no solve of its own costs zero.
    pub cost: Option<Money>,
    /// The URL that gets a callback when it ends.
    pub callback_url: Option<Secret>,
    /// The dead letter it revives; it is the next generation of that letter's claim.
    pub revives: Option<SolveId>,
    /// Whether the site accepted the token, once the worker reported it.
    pub report: Option<Feedback>,
    /// How often its key opened it again after a failure. Rows of releases before 0.2.0 end before this field.
    pub reopened: u32,
    /// It ended without a token while an attempt was ambiguous, or after one was written off, so money may be lost. Its key
    /// does not open it again, because paying again is for the caller to decide.
    pub may_have_paid: bool,
}

/// How a repeated claim is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// By the worker's own idempotency key, for at least a day. After a failure the key can open the claim again, see
    /// [`NewClaim::reopens_after`].
    Named(KeyHash),
    /// By its parameters, while the first claim is in flight and for `window` after its end, but never past the token's
    /// life.
    Derived {
        /// The hash of worker and fingerprint.
        hash: KeyHash,
        /// How long after the end of the first claim.
        window: Duration,
    },
    /// Never: every request is a new claim.
    Own,
}

/// A claim about to be admitted. Fields without a comment are those of [`Claim`].
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "they are explained there")]
pub struct NewClaim {
    pub id: ClaimId,
    /// A new id for the solve, if one is opened.
    pub solve: SolveId,
    pub worker: WorkerName,
    pub project: Project,
    pub door: Door,
    pub challenge: Arc<Challenge>,
    pub fingerprint: Fingerprint,
    pub basis: Arc<str>,
    /// How a repetition of it is recognised.
    pub key: KeyRule,
    pub deadline: Timestamp,
    /// The list price of a solve of this kind.
    pub price: Option<Money>,
    /// The budget of the worker.
    pub allowance: Allowance,
    /// The budget of the account.
    pub account: Allowance,
    /// The rules of the solve, if one is opened.
    pub policy: Policy,
    /// Whether the reply carries the token, so that a stocked or replayed token counts as delivered at once.
    pub collect: bool,
    pub callback_url: Option<Secret>,
    /// The earliest time a solve opened now can answer. A claim with an earlier deadline is refused, because we would pay
    /// for nothing.
    pub soonest: Timestamp,
    pub revives: Option<SolveId>,
    /// How long after a failure its named key opens the claim again. `None`: the key replays the failure for its whole life.
    pub reopens_after: Option<Duration>,
    /// Set by the store when a key opens its claim again; 0 in every request.
    pub reopened: u32,
    /// The solve is to be submitted at once, if a new one is opened for the claim: the gateway has a slot for it.
    pub start: Option<Start>,
}

/// A gateway that submits a new solve as soon as the admission is durable. Without it, the solve waits until a gateway leases
/// it.
#[derive(Clone, Debug)]
pub struct Start {
    /// The gateway. It must hold its own lease.
    pub holder: HolderId,
    /// The name of the first attempt.
    pub nonce: Nonce,
    /// The declarations in force, which must allow the claim.
    pub guard: Guard,
}

/// The result of an admission.
#[derive(Clone, Debug)]
pub enum Admission {
    /// A claim with the same key exists. This is that claim.
    Replayed(Claim),
    /// The claim was served from stock at once.
    Stocked(Claim),
    /// The claim waits for, or was served by, a solve that another claim opened.
    Joined(Claim),
    /// A new solve was opened for the claim.
    Opened(Claim),
    /// A new solve was opened for the claim, leased by the gateway of its [`Start`], and its first intent written: the
    /// gateway may submit it.
    Started(Claim, Box<Lease>),
    /// The key belongs to a claim for another challenge. Nothing changed.
    Mismatch(ClaimId),
    /// A budget has no room for it. Nothing changed.
    OverBudget(LimitReached),
    /// It would lapse before a solve opened now can answer. Nothing changed.
    TooLate,
    /// An id is taken; the caller draws new ones and tries again. Nothing changed.
    NameTaken,
}

/// How often a claim was answered again. These answers change nothing, so they are counted and not entered one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Fetches of its token after the first.
    pub fetched: u64,
    /// Requests with its key after the first.
    pub replayed: u64,
}

/// The result of a fetch.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// The claim with its token, which counts as delivered from now on.
    Token(Claim),
    /// The token expired or was given back, and cannot be handed out.
    Expired(Claim),
    /// The claim has no token (yet).
    Nothing(Claim),
}

impl Claim {
    /// 1, and one more each time its key opened it again after a failure.
    pub fn generation(&self) -> u32 {
        self.reopened.saturating_add(1)
    }

    /// When a repeat of its named key opens it again, `after` being the failure window. `None`: the key replays the end.
    pub fn reopens_at(&self, after: Option<Duration>) -> Option<Timestamp> {
        let has_failed = matches!(self.state, ClaimState::Failed | ClaimState::Lapsed);
        // Releases before 0.2.0 wrote the code only.
        let lost = [own::AMBIGUOUS, own::POISON, own::DUPLICATE_TASK];
        let may_have_paid = self.code.as_ref().is_some_and(|code| lost.contains(&code.as_str()));
        let is_over = has_failed && !self.may_have_paid && !may_have_paid;
        self.ended_at.filter(|_| is_over).zip(after).map(|(ended_at, window)| ended_at.plus(window))
    }

    /// Whether its key is the worker's own, and not derived from its challenge.
    pub fn has_named_key(&self) -> bool {
        let derived = [
            KeyHash::derived(&self.worker, &self.fingerprint),
            KeyHash::revived(&self.worker, &self.fingerprint),
        ];
        self.key.is_some_and(|key| !derived.contains(&key))
    }

    /// Whether it has the text of a token, or a callback address.
    pub fn holds_secret(&self) -> bool {
        self.callback_url.is_some()
            || self.token.as_ref().is_some_and(|token| !token.answer.is_dropped())
    }
}

impl NewClaim {
    /// Whether an operator brings it back. A claim that its own key opens again is live work.
    pub fn is_revival(&self) -> bool {
        self.revives.is_some() && self.reopened == 0
    }
}

impl ClaimState {
    /// Whether the claim ended.
    pub fn is_final(self) -> bool {
        self != Self::Waiting
    }

    /// The name in API and dashboard.
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
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Stock => "stock",
            Self::Replay => "replay",
            Self::Join => "join",
        }
    }
}
