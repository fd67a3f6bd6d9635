//! Readings for people: dashboard, statistics, command line. May lag; never used to decide.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    challenge::Kind,
    claim::{Claim, ClaimState},
    dead_letter::DeadLetter,
    fingerprint::Fingerprint,
    id::{ClaimId, Project, SolveId, WorkerName},
    ledger::{Entry, Total},
    money::Money,
    pool::Pool,
    retry::Code,
    solve::Stage,
    time::{Day, Timestamp},
};

use super::{archive::Lot, store::StoreError};

/// The readings. Lists are newest first and paged.
#[async_trait]
pub trait Records: fmt::Debug + Send + Sync + 'static {
    /// Claims that match, newest first.
    async fn history(&self, filter: ClaimFilter) -> Result<Paged<Claim>, StoreError>;

    /// Solves under way.
    async fn active(&self, scope: Scope, limit: usize) -> Result<Vec<ActiveSolve>, StoreError>;

    /// Sums of the days asked for.
    async fn totals(&self, ask: TotalsAsk) -> Result<Vec<Total>, StoreError>;

    /// Dead letters that match, newest first.
    async fn dead_letters(&self, filter: DeadLetterFilter)
    -> Result<Paged<DeadLetter>, StoreError>;

    /// One dead letter.
    async fn dead_letter(&self, id: SolveId) -> Result<Option<DeadLetter>, StoreError>;

    /// Everything that happened to a claim and its solve, in order.
    async fn explain(&self, claim: ClaimId) -> Result<Vec<Entry>, StoreError>;

    /// The ledger from `from` on, in order: for checks, exports and archives.
    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// At most `limit` entries of the ledger after `after`, for the archive; from the beginning when the ledger does not
    /// have that entry.
    async fn lot(&self, after: Option<Entry>, limit: usize) -> Result<Lot, StoreError>;

    /// What the day has used up of its budgets.
    async fn spending(&self, day: Day) -> Result<DaySpending, StoreError>;

    /// Pools and what they have.
    async fn pools(&self, now: Timestamp) -> Result<Vec<PoolState>, StoreError>;

    /// What was learned about how early tokens have to be used.
    async fn margins(&self) -> Result<Vec<LearnedMargin>, StoreError>;

    /// Unassigned tokens by fingerprint.
    async fn stock_levels(&self, now: Timestamp) -> Result<Vec<StockLevel>, StoreError>;
}

/// Whose records are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everybody's: the admin.
    All,
    /// One worker's own.
    Worker(WorkerName),
}

/// Where a list goes on: the time and name of the last record shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Its time.
    pub at: Timestamp,
    /// Its name's number.
    pub id: u64,
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged<T> {
    /// The records.
    pub items: Vec<T>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<Cursor>,
}

/// Which claims.
#[derive(Clone, Debug)]
pub struct ClaimFilter {
    /// Whose.
    pub scope: Scope,
    /// Only of this site key.
    pub sitekey: Option<String>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only in this state.
    pub state: Option<ClaimState>,
    /// Only of this project.
    pub project: Option<Project>,
    /// From here on.
    pub from: Option<Cursor>,
    /// At most so many.
    pub limit: usize,
}

/// Which dead letters.
#[derive(Clone, Debug)]
pub struct DeadLetterFilter {
    /// Whose.
    pub scope: Scope,
    /// Only with this code.
    pub code: Option<Code>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only of pages on this host.
    pub host: Option<String>,
    /// Only of this project.
    pub project: Option<Project>,
    /// Only those that died then or later.
    pub since: Option<Timestamp>,
    /// Only those that died then or earlier.
    pub until: Option<Timestamp>,
    /// Also those already closed.
    pub closed: bool,
    /// From here on.
    pub from: Option<Cursor>,
    /// At most so many.
    pub limit: usize,
}

/// Which sums.
#[derive(Clone, Debug)]
pub struct TotalsAsk {
    /// Whose.
    pub scope: Scope,
    /// First day.
    pub from: Day,
    /// Last day, included.
    pub to: Day,
}

/// What a day has used up of its budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaySpending {
    /// By worker.
    pub workers: Vec<(WorkerName, Spent)>,
    /// AUTHORISE events.
    pub authorised: u32,
}

/// What a worker opened on a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Solves.
    pub opened: u64,
    /// At list price.
    pub listed: Money,
}

/// A solve under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveSolve {
    /// Its name.
    pub id: SolveId,
    /// Claims that wait for it.
    pub claims: Vec<ClaimId>,
    /// Whose.
    pub worker: WorkerName,
    /// Charged to.
    pub project: Project,
    /// Of which kind.
    pub kind: Kind,
    /// Where it stands.
    pub stage: Stage,
    /// The current attempt.
    pub attempt: u32,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it is looked at next, as far as the store knows.
    pub due: Timestamp,
    /// The last thing that went wrong.
    pub last_code: Option<Code>,
}

/// A pool and what it has.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolState {
    /// The pool.
    pub pool: Pool,
    /// Until when each token in stock is handed out, soonest first.
    pub stock: Vec<Timestamp>,
    /// Solves under way that nobody waits for: orders, and what was left behind.
    pub coming: usize,
    /// Claims that wait.
    pub waiting: usize,
}

/// How much earlier than usual tokens of a kind have to be used at a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedMargin {
    /// The site.
    pub host: String,
    /// The kind.
    pub kind: Kind,
    /// What is added to the kind's margin.
    pub extra: Duration,
    /// Late tokens the site took.
    pub good: u64,
    /// Late tokens the site refused.
    pub bad: u64,
}

/// Unassigned tokens of one fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockLevel {
    /// Of which challenge.
    pub fingerprint: Fingerprint,
    /// Of which kind.
    pub kind: Kind,
    /// How many are usable.
    pub usable: usize,
    /// When the next one dies.
    pub next_expiry: Option<Timestamp>,
}

impl ClaimFilter {
    /// All of them, newest first.
    pub fn all(scope: Scope, limit: usize) -> Self {
        Self { scope, sitekey: None, kind: None, state: None, project: None, from: None, limit }
    }
}

impl DeadLetterFilter {
    /// All open ones, newest first.
    pub fn open(scope: Scope, limit: usize) -> Self {
        Self {
            scope,
            code: None,
            kind: None,
            host: None,
            project: None,
            since: None,
            until: None,
            closed: false,
            from: None,
            limit,
        }
    }
}
