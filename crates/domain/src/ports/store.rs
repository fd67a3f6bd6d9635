//! The contract of every store. One method is one atomic decision; its ledger entries are written in the same step;
//! `now` always comes from the caller. docs/adr/0001-store-contract.md walks each method through every backend.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    callback::Callback,
    claim::{Admission, Allowance, Claim, Delivery, NewClaim},
    dead_letter::Closed,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, SolveId, WorkerName},
    lease::{Holder, Lease},
    ledger::Event,
    money::Money,
    pool::{Expectation, Pool, StandingOrder, Target},
    retry::Code,
    solve::{Decision, Fact, Policy, Refused, Solve},
    time::Timestamp,
};

use super::archive::History;

/// Any error of a library below.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The decisions.
///
/// The caller brings the time and fresh names; the result says what the store decided. Every store behaves like this:
///
/// ```
/// use domain::{claim::Admission, id::HolderId, lease::Holder, ports::LeaseAsk, solve::Decision};
/// # use domain::{
/// #     challenge::{Challenge, Draft, Kind}, claim::{Allowance, Door, KeyRule, NewClaim},
/// #     fingerprint::{Fingerprint, Identity, KeyHash}, id::{ClaimId, Nonce, Project, SolveId, WorkerName},
/// #     ports::StoreError, solve::{Policy, Stage}, time::Timestamp,
/// # };
/// #
/// # fn new_claim(number: u64, key: &str, now: Timestamp) -> NewClaim {
/// #     let files = [("body".to_owned(), vec![1, 2, 3])].into();
/// #     let challenge = Challenge::new(Kind::Image, Draft { files, ..Draft::default() }).unwrap();
/// #     let worker = WorkerName::new("ann").unwrap();
/// #     NewClaim {
/// #         id: ClaimId::from_number(100_000_000_000_000 + number),
/// #         solve: SolveId::from_number(200_000_000_000_000 + number),
/// #         key: KeyRule::Named(KeyHash::named(&worker, key).unwrap()),
/// #         worker,
/// #         project: Project::new("shop").unwrap(),
/// #         door: Door::V1,
/// #         fingerprint: Fingerprint::of(&challenge, Identity::default()),
/// #         challenge: challenge.into(),
/// #         basis: "own shop".into(),
/// #         deadline: now.plus(std::time::Duration::from_secs(120)),
/// #         price: None,
/// #         allowance: Allowance::default(),
/// #         policy: Policy::default(),
/// #         collect: false,
/// #         callback_url: None,
/// #         soonest: now,
/// #         revives: None,
/// #     }
/// # }
/// #
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StoreError> {
/// let store = stores::open("memory:").unwrap().store;
/// let now = Timestamp::from_millis(1_767_225_600_000);
///
/// // A claim opens a solve. The same idempotency key again finds that claim and opens nothing.
/// let first = store.admit(new_claim(1, "order-17", now), now).await?;
/// let again = store.admit(new_claim(2, "order-17", now), now).await?;
/// assert!(matches!(first, Admission::Opened(_)));
/// assert!(matches!(again, Admission::Replayed(_)));
///
/// // A process takes its own lease first, then the solves that are due.
/// let process = HolderId::from_number(1);
/// store.hold(Holder { id: process, until: now.plus(LeaseAsk::TERM) }, now).await?;
/// let leases = store.lease(LeaseAsk::any(process, 10), now).await?;
/// assert_eq!(leases.len(), 1);
///
/// // The intent is durable before a submission may cost money. A decision needs the current fence.
/// let intend = Decision::Intend { nonce: Nonce::from_number(1) };
/// let solve = store.advance(&leases[0], intend, now).await?.expect("nobody else leased it");
/// assert_eq!(solve.stage, Stage::Intent);
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Decides an arriving claim: replayed, stocked, joined or opened; or refused without a change.
    async fn admit(&self, claim: NewClaim, now: Timestamp) -> Result<Admission, StoreError>;

    /// Reads a claim as it stands.
    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError>;

    /// Reads a solve as it stands.
    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>, StoreError>;

    /// Hands out a served claim's token, if it is alive, and remembers that it was handed out.
    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>, StoreError>;

    /// Takes a claim back. Unsent work ends, paid work goes on and its token is banked.
    async fn withdraw(&self, id: ClaimId, now: Timestamp)
    -> Result<Option<Withdrawal>, StoreError>;

    /// Renews the one lease of a process, or takes it.
    async fn hold(&self, holder: Holder, now: Timestamp) -> Result<(), StoreError>;

    /// Gives up the process's lease and all its solves, so that others (or itself, after a lost reply) go on at
    /// once. An intent keeps its holder: should that process not come back, the attempt becomes ambiguous.
    async fn release(&self, holder: HolderId, now: Timestamp) -> Result<(), StoreError>;

    /// Takes solves that are due and free (or whose holder is dead), each with a fresh fence; all there are, or the one
    /// that is named.
    async fn lease(&self, ask: LeaseAsk, now: Timestamp) -> Result<Vec<Lease>, StoreError>;

    /// Applies a fenced decision. The result is the solve as it stands now.
    async fn advance(
        &self,
        lease: &Lease,
        decision: Decision,
        now: Timestamp,
    ) -> Result<Result<Solve, Refused>, StoreError>;

    /// Takes a fact about an attempt, allots what it brings, and ends what it ends. Telling it twice changes nothing.
    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> Result<Settled, StoreError>;

    /// Writes an entry about a refusal or a report. A report counts once: `false` when the claim has one already. A bad
    /// one also takes a shared answer out of stock, and the site's margin learns from it.
    async fn note(&self, note: Note, now: Timestamp) -> Result<bool, StoreError>;

    /// Brings a dead letter back: its claims come in once more, as their next generation, under the same rules of
    /// uniqueness as any claim. Nothing is paid twice for one letter, however often it is asked for.
    async fn revive(&self, ask: Revive, now: Timestamp) -> Result<Revival, StoreError>;

    /// Throws a dead letter away; `false` when there is none. Paid work it still waits for goes on.
    async fn purge(
        &self,
        letter: SolveId,
        by: WorkerName,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Callbacks that are due, each counted as tried and put off to its next try; those older than a day are dropped.
    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>, StoreError>;

    /// The receiver took the callback: it leaves the outbox.
    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<(), StoreError>;

    /// Opens or changes a standing order, or ends it; the result is the pool as it stands, or stood.
    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError>;

    /// Announces demand to a pool.
    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError>;

    /// Orders what a pool is short of its target. One living holder at a time is its controller; orders count before
    /// they are sent.
    async fn refill(&self, ask: Refill, now: Timestamp) -> Result<Refilled, StoreError>;

    /// Keeps a small thing learned, under a name.
    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError>;

    /// What was kept under names with this beginning.
    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Lapses what passed its deadline, drops what expired.
    async fn sweep(&self, ask: SweepAsk, now: Timestamp) -> Result<Swept, StoreError>;
}

pub use note::Note;

mod note {
    use super::{ClaimId, Event};
    use crate::{
        challenge::Kind,
        id::{Project, WorkerName},
    };

    /// An entry without a state change.
    #[derive(Clone, Debug)]
    pub struct Note {
        /// The claim it is about.
        pub claim: Option<ClaimId>,
        /// Whose.
        pub worker: WorkerName,
        /// Charged to.
        pub project: Project,
        /// Of which kind.
        pub kind: Option<Kind>,
        /// What happened.
        pub event: Event,
    }
}

/// Which solves a process wants.
#[derive(Clone, Copy, Debug)]
pub struct LeaseAsk {
    /// Who asks; it must hold its own lease.
    pub holder: HolderId,
    /// At most so many.
    pub limit: usize,
    /// This one and no other: whoever came for one solve leaves the rest to others.
    pub only: Option<SolveId>,
}

/// What a sweep is to do.
#[derive(Clone, Debug)]
pub struct SweepAsk {
    /// At most so many records of each sort.
    pub limit: usize,
    /// The account's trouble, when it has any. Claims that lapse unsent because of it carry this code instead of
    /// "deadline", and make no dead letter: nothing is wrong with them.
    pub trouble: Option<Code>,
    /// Where history is kept for long: what an archive has, the store drops a day after its end.
    pub history: History,
}

/// Which dead letter is to be brought back, and on what terms.
#[derive(Clone, Debug)]
pub struct Revive {
    /// The letter.
    pub letter: SolveId,
    /// By whom.
    pub by: WorkerName,
    /// Fresh names, one for each claim of the letter.
    pub claims: Vec<ClaimId>,
    /// A fresh name for the solve, should one be opened.
    pub solve: SolveId,
    /// Why solving for its page is allowed, now.
    pub basis: Arc<str>,
    /// When the claims lapse.
    pub deadline: Timestamp,
    /// The listed price of a solve of its kind.
    pub price: Option<Money>,
    /// What the workers there are may still open today. Claims of others do not come back.
    pub allowances: BTreeMap<WorkerName, Allowance>,
    /// How its solve is to be treated.
    pub policy: Policy,
}

/// What became of a dead letter that was to be brought back.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Revival {
    /// What became of the first of its claims that came in again; or, when none did, of the first.
    Back(Admission),
    /// None of its workers is there any more. Nothing changed.
    Disowned,
    /// It is closed already. Nothing changed.
    Closed(Closed),
    /// There is no such letter. Nothing changed.
    Unknown,
}

/// What a pool's controller orders.
#[derive(Clone, Debug)]
pub struct Refill {
    /// Which pool.
    pub pool: Fingerprint,
    /// Who asks; it must hold its own lease.
    pub holder: HolderId,
    /// What it aims at.
    pub target: Target,
    /// Fresh names for the solves; no more are opened.
    pub solves: Vec<SolveId>,
    /// Orders not sent by then are given up.
    pub wanted_until: Timestamp,
    /// The listed price of a solve.
    pub price: Option<Money>,
}

/// What an order led to.
#[derive(Clone, Debug)]
pub struct Refilled {
    /// Whether the asker is the controller.
    pub is_controller: bool,
    /// Solves opened.
    pub opened: Vec<SolveId>,
}

/// What a fact changed.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The solve as it stands now.
    pub solve: Solve,
    /// Whether the fact was news.
    pub fresh: bool,
    /// Claims that reached their end: ring for them.
    pub ended: Vec<ClaimId>,
    /// A solve opened to harvest an orphaned task.
    pub orphan: Option<SolveId>,
}

/// What a withdrawal found.
#[derive(Clone, Debug)]
pub struct Withdrawal {
    /// The claim as it stands now.
    pub claim: Claim,
    /// Whether it was still waiting.
    pub was_waiting: bool,
}

/// What a sweep did.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// Claims whose deadline passed: ring for them.
    pub lapsed: Vec<ClaimId>,
    /// Tokens that died in stock.
    pub wasted: usize,
    /// Tokens taken back from claims that never fetched them.
    pub banked: usize,
    /// Records whose retention ended.
    pub dropped: usize,
}

/// Why a store could not answer. "Not found" and "already there" are results, not errors.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is away, or the disk failed: nothing may be spent.
    #[error("the {backend} store is unavailable: {source}")]
    Unavailable {
        /// Which.
        backend: &'static str,
        /// Why.
        source: BoxError,
    },
    /// It holds something that cannot be: nothing is guessed.
    #[error("the {backend} store is corrupt ({what}): {source}")]
    Corrupt {
        /// Which.
        backend: &'static str,
        /// Where.
        what: &'static str,
        /// Why.
        source: BoxError,
    },
}

impl SweepAsk {
    /// Of a store that keeps its own history, and whose account has no trouble.
    pub fn plain(limit: usize) -> Self {
        Self { limit, trouble: None, history: History::Here }
    }
}

impl LeaseAsk {
    /// How long a process's lease lasts.
    pub const TERM: Duration = Duration::from_secs(15);

    /// Whatever there is, up to so many.
    pub fn any(holder: HolderId, limit: usize) -> Self {
        Self { holder, limit, only: None }
    }

    /// One solve and no other.
    pub fn only(holder: HolderId, solve: SolveId) -> Self {
        Self { holder, limit: 1, only: Some(solve) }
    }
}
