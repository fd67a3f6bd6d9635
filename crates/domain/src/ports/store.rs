//! The contract of every store. One method is one atomic decision; the store writes its ledger entries in the same
//! transaction; the time always comes from the caller. The crate `store-tests` holds every backend to it.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    account_share::Standing,
    actor::Actor,
    admin_action::AdminAction,
    callback::Callback,
    challenge::Challenge,
    claim::{Admission, Claim, Delivery, NewClaim, Repeats},
    dead_letter::Closed,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, SolveId},
    lease::{Holder, Lease},
    money::Money,
    pause::Pauses,
    pool::{Expectation, Pool, StandingOrder},
    solve::{Decision, Fact, Refused, Solve},
    time::Timestamp,
};

use super::clock::ClockOffset;
use super::requests::{
    LeaseRequest, Note, PauseRequest, RefillRequest, ReviveRequest, SweepRequest,
};

/// An error of a library that a backend uses.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The decisions.
///
/// The caller supplies the time and new ids; the result says what the store decided. Every store behaves like this:
///
/// ```
/// use domain::{claim::Admission, id::HolderId, lease::Holder, ports::{Advanced, LeaseRequest}, solve::Decision};
/// # use domain::{
/// #     challenge::{Challenge, ChallengeParts, Kind}, claim::{Allowance, Door, KeyRule, NewClaim},
/// #     fingerprint::{Fingerprint, Identity, KeyHash}, id::{ClaimId, Nonce, Project, SolveId, WorkerName},
/// #     ports::StoreError, solve::{Policy, Stage}, time::Timestamp,
/// # };
/// #
/// # fn new_claim(number: u64, key: &str, now: Timestamp) -> NewClaim {
/// #     let files = [("body".to_owned(), vec![1, 2, 3])].into();
/// #     let challenge = Challenge::new(Kind::Image, ChallengeParts { files, ..ChallengeParts::default() }).unwrap();
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
/// #         account: Allowance::default(),
/// #         policy: Policy::default(),
/// #         collect: false,
/// #         callback_url: None,
/// #         soonest: now,
/// #         revives: None,
/// #         reopens_after: None,
/// #         reopened: 0,
/// #         start: None,
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
/// store.hold(Holder::apart(process, now.plus(LeaseRequest::TERM))).await?;
/// let leases = store.lease(LeaseRequest::any(process, 10), now).await?;
/// assert_eq!(leases.len(), 1);
///
/// // The intent is durable before a submission may cost money. A decision needs the current fence.
/// let intend = Decision::Intend { guard: domain::declarations::Guard::open(), nonce: Nonce::from_number(1) };
/// match store.advance(&leases[0], intend, now).await? {
///     Advanced::Done(solve) => assert_eq!(solve.stage, Stage::Intent),
///     Advanced::Refused(why) => panic!("nobody else leased it, but: {why}"),
/// }
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Decides a new claim: replayed, stocked, joined, opened or started; or refused, which changes nothing.
    async fn admit(&self, claim: NewClaim, now: Timestamp) -> StoreResult<Admission>;

    /// Takes back the start of an admission whose answer was lost: nothing was sent under its nonce, and nothing will be. The
    /// solve waits in the queue then, free for every gateway. Returns the claim, if it was admitted. If it was not, a late
    /// copy of the admission changes nothing any more.
    async fn withhold_start(
        &self,
        claim: ClaimId,
        solve: SolveId,
        nonce: Nonce,
        now: Timestamp,
    ) -> StoreResult<Option<Claim>>;

    /// Reads a claim, without a change.
    async fn find_claim(&self, id: ClaimId) -> StoreResult<Option<Claim>>;

    /// Reads claims, all at once and without a change; those that do not exist are left out.
    async fn find_claims(&self, ids: Vec<ClaimId>) -> StoreResult<Vec<Claim>>;

    /// Reads a solve, without a change.
    async fn find_solve(&self, id: SolveId) -> StoreResult<Option<Solve>>;

    /// Reads the challenge of a solve with its pictures; `None` once it is deleted, an hour after the end of the solve.
    async fn find_challenge(&self, id: SolveId) -> StoreResult<Option<Arc<Challenge>>>;

    /// Hands out a served claim's token if it has not expired, and records the first time it was handed out. Later calls
    /// write nothing.
    async fn deliver(&self, id: ClaimId, now: Timestamp) -> StoreResult<Option<Delivery>>;

    /// Withdraws a claim. Work that was not submitted ends; paid work goes on, and its token goes to stock. `by` is the
    /// admin who withdraws it in place of its worker.
    async fn withdraw(
        &self,
        id: ClaimId,
        by: Option<Actor>,
        now: Timestamp,
    ) -> StoreResult<Option<Withdrawal>>;

    /// Adds to the counts of how often the tokens of claims were fetched again. Claims that do not exist are left out.
    async fn count_fetches(&self, fetches: Vec<(ClaimId, u64)>) -> StoreResult<()>;

    /// Reads how often a claim was answered again.
    async fn repeats(&self, id: ClaimId) -> StoreResult<Repeats>;

    /// Compares the clock of this gateway with the server's. While they are more than [`MAX_CLOCK_OFFSET`] apart, this and
    /// every decision that takes a time fail with [`StoreError::WrongClock`], except facts, which may be the only trace of
    /// money, and pauses. A store without a server has no clock to compare with.
    ///
    /// [`MAX_CLOCK_OFFSET`]: super::MAX_CLOCK_OFFSET
    async fn compare_clock(&self) -> StoreResult<()>;

    /// Takes or renews the one lease of a process. Returns how many processes hold a lease at the beginning of this one,
    /// itself included, so that limits of all processes together can be divided among them; and the process's shares of
    /// the account's limits ([`account_share`](crate::account_share)).
    async fn hold(&self, holder: Holder) -> StoreResult<Standing>;

    /// Gives up the process's lease and all its solves, so that other processes (or the same one, after a lost reply)
    /// go on at once. A solve with an open intent keeps its holder: if that process does not come back, the attempt
    /// becomes ambiguous.
    async fn release(&self, holder: HolderId) -> StoreResult<()>;

    /// Leases solves that are due and free, or whose holder is dead. Each lease gets a new fence.
    async fn lease(&self, request: LeaseRequest, now: Timestamp) -> StoreResult<Vec<Lease>>;

    /// Applies a decision under the lease's fence.
    async fn advance(
        &self,
        lease: &Lease,
        decision: Decision,
        now: Timestamp,
    ) -> StoreResult<Advanced>;

    /// Records a fact about an attempt, hands out the token it brings, and ends the claims it ends. Facts need no fence:
    /// they are true no matter which process learns them. Recording one twice changes nothing.
    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> StoreResult<Settled>;

    /// Writes an entry about a refusal or a report. A claim's first report counts; a later one changes nothing. A bad
    /// report also takes a shared answer out of stock, and adjusts the site's margin. Returns whether a report is to be
    /// passed on to the provider: `false` when this claim, or another one with the token of the same task, has reported.
    async fn note(&self, note: Note, now: Timestamp) -> StoreResult<bool>;

    /// Revives a dead letter: its claims are admitted again, as their next generation, under the same uniqueness rules
    /// as any claim. Nothing is paid twice for one letter, however often it is revived.
    async fn revive(&self, request: ReviveRequest, now: Timestamp) -> StoreResult<Revival>;

    /// Deletes a dead letter; `false` when there is none. A paid attempt that is still open goes on.
    async fn purge(&self, letter: SolveId, by: Actor, now: Timestamp) -> StoreResult<bool>;

    /// Takes callbacks that are due. Each is counted as tried and rescheduled; those older than a day are dropped.
    async fn callbacks(&self, limit: usize, now: Timestamp) -> StoreResult<Vec<Callback>>;

    /// Removes a callback from the outbox, because its receiver accepted it.
    async fn called_back(&self, callback: &Callback, now: Timestamp) -> StoreResult<()>;

    /// Opens or changes a pool's standing order, or ends it with `None`. Returns the pool as it is, or as it was before
    /// its end. Without an admin, the configuration declares it.
    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        by: Option<Actor>,
        now: Timestamp,
    ) -> StoreResult<Option<Pool>>;

    /// Announces demand to a pool.
    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        by: Option<Actor>,
        now: Timestamp,
    ) -> StoreResult<Option<Pool>>;

    /// Opens the solves a pool is short of its target. One living holder at a time is the pool's controller. Orders
    /// count from the moment they are opened, so two refills do not order the same shortage.
    async fn refill(&self, request: RefillRequest, now: Timestamp) -> StoreResult<Refilled>;

    /// Pauses or resumes submissions, and writes who did it. Repeated, it changes nothing and writes nothing. A pause goes
    /// before all other decisions that wait, and is not refused while the clock is wrong.
    async fn set_pause(&self, request: PauseRequest, now: Timestamp) -> StoreResult<PauseResult>;

    /// The pauses in force. A decision that spends reads them by itself.
    async fn pauses(&self) -> StoreResult<Pauses>;

    /// Writes down what somebody did that is about no record of the store, such as a reload.
    async fn administer(&self, by: Actor, action: AdminAction, now: Timestamp) -> StoreResult<()>;

    /// Takes the right to read the account's balance at the provider, and writes down that it is read now; `None` when a
    /// gateway did so less than `least_gap` ago and on the same day. The number belongs to the answer.
    async fn ask_balance(&self, least_gap: Duration, now: Timestamp) -> StoreResult<Option<u32>>;

    /// Writes down the balance that was read under a number.
    async fn record_balance(&self, number: u32, amount: Money, now: Timestamp) -> StoreResult<()>;

    /// Stores a small value under a name, for example what the engine learned about polling.
    async fn set_memo(&self, name: &str, value: Vec<u8>) -> StoreResult<()>;

    /// The values whose names start with `prefix`.
    async fn memos(&self, prefix: &str) -> StoreResult<Vec<(String, Vec<u8>)>>;

    /// Lapses claims past their deadline and deletes records past their retention.
    async fn sweep(&self, request: SweepRequest, now: Timestamp) -> StoreResult<Swept>;
}

/// The result of a fenced decision.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Advanced {
    /// The solve after the decision.
    Done(Solve),
    /// The store changed nothing, for this reason.
    Refused(Refused),
}

/// What became of a dead letter that was to be revived.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Revival {
    /// The admission of the first of its claims that was admitted; or, when none was, of the first.
    Back(Admission),
    /// None of its workers is in the configuration now. Nothing changed.
    Disowned,
    /// It was closed before. Nothing changed.
    Closed(Closed),
    /// No dead letter has this id.
    Unknown,
}

/// The result of pausing or resuming.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseResult {
    /// The pauses now in force, and whether the request changed them.
    Done {
        /// The pauses in force.
        pauses: Pauses,
        /// Whether the request changed them.
        is_new: bool,
    },
    /// [`MAX_PAUSES`](crate::pause::MAX_PAUSES) are in force. Nothing changed.
    TooMany,
}

/// The result of a refill.
#[derive(Clone, Debug)]
pub struct Refilled {
    /// Whether the holder is the pool's controller. If not, nothing was opened.
    pub is_controller: bool,
    /// The solves that were opened.
    pub opened: Vec<SolveId>,
}

/// The result of a fact.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The solve after the fact.
    pub solve: Solve,
    /// Whether the fact was new to the store.
    pub fresh: bool,
    /// Claims that ended; the caller notifies their subscribers.
    pub ended: Vec<ClaimId>,
    /// A solve opened to poll a paid task that its own solve no longer waits for.
    pub orphan: Option<SolveId>,
}

/// The result of a withdrawal.
#[derive(Clone, Debug)]
pub struct Withdrawal {
    /// The claim after the withdrawal.
    pub claim: Claim,
    /// Whether it was still waiting, so that the withdrawal changed something.
    pub was_waiting: bool,
}

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// Claims whose deadline passed; the caller notifies their subscribers.
    pub lapsed: Vec<ClaimId>,
    /// Tokens that expired in stock.
    pub wasted: usize,
    /// Tokens moved to stock from claims that never fetched them.
    pub banked: usize,
    /// Records deleted at the end of their retention.
    pub dropped: usize,
}

/// The result of every call to a store.
pub type StoreResult<T, E = StoreError> = Result<T, E>;

/// Why a store could not answer. "Not found" and "exists already" are results, not errors.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The server or the disk failed. The caller must not spend money, and may retry.
    #[error("the {backend} store is unavailable: {source}")]
    Unavailable {
        /// The name of the backend.
        backend: &'static str,
        /// The error of its library, or our own text. Shared, because one failed commit fails every decision in it.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A stored record cannot be read or contradicts another one. The store does not guess, and a retry does not help.
    #[error("the {backend} store is corrupt ({what}): {source}")]
    Corrupt {
        /// The name of the backend.
        backend: &'static str,
        /// The table of the record.
        what: &'static str,
        /// The decoding error, or the contradiction.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The clock of this gateway is wrong, so it must not decide what has expired. The store changed nothing.
    #[error(
        "the clock of this gateway is {0} that of the store's server: correct the clock of this machine (NTP), and restart the gateway if its clock was ahead"
    )]
    WrongClock(ClockOffset),
}

impl StoreError {
    /// The server or the disk failed, because of `why`.
    pub fn unavailable(backend: &'static str, why: impl Into<BoxError>) -> Self {
        Self::Unavailable { backend, source: why.into().into() }
    }

    /// A record of the table `what` cannot be used, because of `why`.
    pub fn corrupt(backend: &'static str, what: &'static str, why: impl Into<BoxError>) -> Self {
        Self::Corrupt { backend, what, source: why.into().into() }
    }
}
