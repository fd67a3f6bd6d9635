//! Readings for people: dashboard, statistics, command line. They may lag behind the decisions, and no decision uses them.

use std::{collections::BTreeMap, fmt, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    budget::{Allowance, BudgetBook, BudgetScope, LimitState, Reservation},
    chain::LedgerItem,
    challenge::Kind,
    claim::{Claim, ClaimState},
    dead_letter::{DeadLetter, DeadLetterClass},
    id::{ClaimId, Project, SolveId, WorkerName},
    ledger::{Entry, Total},
    pool::Pool,
    retry::Code,
    solve::Stage,
    time::{Day, Timestamp},
};

use super::{archive::ArchiveBatch, store::StoreResult};

/// Queries over claims, solves, dead letters, pools and the ledger.
#[async_trait]
pub trait Records: fmt::Debug + Send + Sync + 'static {
    /// Claims that match, newest first.
    async fn history(&self, filter: ClaimFilter) -> StoreResult<Paged<Claim>>;

    /// Solves that have not ended, newest first, at most `limit`. With thousands of them in the store, a worker gets those of
    /// its newest claims.
    async fn active(&self, scope: Scope, limit: usize) -> StoreResult<Vec<ActiveSolve>>;

    /// Sums by day, worker, project and kind.
    async fn totals(&self, filter: TotalsFilter) -> StoreResult<Vec<Total>>;

    /// Dead letters that match, newest first.
    async fn dead_letters(&self, filter: DeadLetterFilter) -> StoreResult<Paged<DeadLetter>>;

    /// The dead letter of a solve.
    async fn dead_letter(&self, id: SolveId) -> StoreResult<Option<DeadLetter>>;

    /// The entries about a claim and its solve, in order.
    async fn explain(&self, claim: ClaimId) -> StoreResult<Vec<Entry>>;

    /// At most `limit` entries from number `from` on, in order. The invariant checks of the simulation, the kill tests and
    /// the benchmarks read the whole ledger with it.
    async fn entries(&self, from: u64, limit: usize) -> StoreResult<Vec<Entry>>;

    /// The places of the ledger from number `from` on, in order, with their hashes: `limit` of them, and the rest of the
    /// last one's decision. What cannot be read is named and does not hide the rest.
    async fn chain(&self, from: u64, limit: usize) -> StoreResult<Vec<LedgerItem>>;

    /// The audit trail: what admins did, what was refused, and what was lost, newest first.
    async fn audit(&self, filter: AuditFilter) -> StoreResult<Paged<Entry>>;

    /// The next batch for the archive: at most `limit` entries after `after`, or from the start of the ledger when it does
    /// not have that entry.
    async fn archive_batch(&self, after: Option<Entry>, limit: usize) -> StoreResult<ArchiveBatch>;

    /// What the day and its month have used of the budgets.
    async fn spending(&self, day: Day) -> StoreResult<DaySpending>;

    /// The pools with their stock and their open orders.
    async fn pools(&self, now: Timestamp) -> StoreResult<Vec<PoolState>>;

    /// The margins learned from reports, by site and kind.
    async fn margins(&self) -> StoreResult<Vec<LearnedMargin>>;
}

/// Whose records a reading covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All records: an admin's view.
    All,
    /// The records of one worker.
    Worker(WorkerName),
}

/// Where the next page of a list starts: after the record with this time and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The time of the last record on the page before.
    pub at: Timestamp,
    /// Its id, because several records may have the same time.
    pub id: u64,
}

/// One page of a list, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged<T> {
    /// The records of this page.
    pub items: Vec<T>,
    /// Where the next page starts; `None` on the last page.
    pub next: Option<Cursor>,
}

/// Selects claims. A filter that is `None` matches every claim.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ClaimFilter {
    /// Whose records the caller may see.
    pub scope: Scope,
    pub sitekey: Option<String>,
    pub kind: Option<Kind>,
    pub state: Option<ClaimState>,
    pub project: Option<Project>,
    pub code: Option<Code>,
    /// Only claims made at this time or later.
    pub since: Option<Timestamp>,
    /// Only claims made at this time or earlier.
    pub until: Option<Timestamp>,
    /// The cursor of the page before.
    pub from: Option<Cursor>,
    /// The most records on the page.
    pub limit: usize,
}

/// Selects dead letters. A filter that is `None` matches every letter.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct DeadLetterFilter {
    /// Whose records the caller may see.
    pub scope: Scope,
    pub class: Option<DeadLetterClass>,
    pub code: Option<Code>,
    pub kind: Option<Kind>,
    /// The host of the challenge's page.
    pub host: Option<String>,
    pub project: Option<Project>,
    /// Only letters written at this time or later.
    pub since: Option<Timestamp>,
    /// Only letters written at this time or earlier.
    pub until: Option<Timestamp>,
    /// Include letters that are closed.
    pub closed: bool,
    /// The cursor of the page before.
    pub from: Option<Cursor>,
    /// The most records on the page.
    pub limit: usize,
}

/// Selects entries of the audit trail. A filter that is `None` matches every entry.
#[derive(Clone, Debug)]
pub struct AuditFilter {
    /// Who acted, or whose requests were refused.
    pub actor: Option<WorkerName>,
    /// The name of the action ([`Event::audited_as`](crate::ledger::Event::audited_as)).
    pub action: Option<String>,
    /// Only entries of this time or later.
    pub since: Option<Timestamp>,
    /// Only entries of this time or earlier.
    pub until: Option<Timestamp>,
    /// The cursor of the page before. Its id is the number of the last entry of a decision.
    pub from: Option<Cursor>,
    /// The most entries on the page. The entries of one decision stay together, so there may be some more.
    pub limit: usize,
}

/// Selects daily sums.
#[derive(Clone, Debug)]
pub struct TotalsFilter {
    /// Whose records the caller may see.
    pub scope: Scope,
    /// The first day of the range.
    pub from: Day,
    /// The last day of the range, inclusive.
    pub to: Day,
}

/// What a day and its month have used of the budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaySpending {
    /// The day.
    pub day: Day,
    /// The books of the day's month. Every worker and every pool that spent has one. The account's is the sum of them.
    pub books: BTreeMap<BudgetScope, BudgetBook>,
    /// Resubmissions of ambiguous attempts that were authorised on the day.
    pub authorised: u32,
}

/// A solve that has not ended. The fields are those of [`Solve`](crate::solve::Solve).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "they are explained there")]
pub struct ActiveSolve {
    pub id: SolveId,
    pub claims: Vec<ClaimId>,
    pub worker: WorkerName,
    pub project: Project,
    pub kind: Kind,
    pub stage: Stage,
    pub attempt: u32,
    pub opened_at: Timestamp,
    /// When its next step is due, as far as the store knows; the holder may have a later plan in memory.
    pub due: Timestamp,
    /// The code of the last failure.
    pub last_code: Option<Code>,
    /// What it holds of the budgets.
    pub reserved: Option<Reservation>,
}

/// A pool with its stock and its open orders.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolState {
    /// The standing order and its accounts.
    pub pool: Pool,
    /// Until when each usable token in stock can be handed out, soonest first.
    pub stock: Vec<Timestamp>,
    /// Open solves that no claim waits for: orders, and solves whose claims were withdrawn.
    pub coming: usize,
    /// The number of claims that wait.
    pub waiting: usize,
}

/// How much earlier than usual a site wants tokens of a kind to be used, learned from reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedMargin {
    /// The host of the site.
    pub host: String,
    /// The kind of token.
    pub kind: Kind,
    /// The time added to the kind's margin.
    pub extra: Duration,
    /// Late tokens that the site accepted.
    pub good: u64,
    /// Late tokens that the site refused.
    pub bad: u64,
}

impl DaySpending {
    /// The states of the limits of one budget.
    pub fn states(&self, scope: &BudgetScope, allowance: &Allowance) -> Vec<LimitState> {
        let unused = BudgetBook::default();
        allowance.states(self.books.get(scope).unwrap_or(&unused), self.day)
    }
}

impl ClaimFilter {
    /// Every claim in the scope.
    pub fn all(scope: Scope, limit: usize) -> Self {
        Self {
            scope,
            sitekey: None,
            kind: None,
            state: None,
            project: None,
            code: None,
            since: None,
            until: None,
            from: None,
            limit,
        }
    }
}

impl AuditFilter {
    /// The whole audit trail.
    pub fn all(limit: usize) -> Self {
        Self { actor: None, action: None, since: None, until: None, from: None, limit }
    }

    /// Whether the entry belongs to the selection.
    pub fn matches(&self, entry: &Entry) -> bool {
        entry.event.audited_as().is_some_and(|name| {
            self.action.as_ref().is_none_or(|action| action == name)
                && self.actor.as_ref().is_none_or(|actor| actor == entry.actor())
                && self.since.is_none_or(|since| since <= entry.at)
                && self.until.is_none_or(|until| entry.at <= until)
        })
    }
}

impl DeadLetterFilter {
    /// Every open letter in the scope.
    pub fn open(scope: Scope, limit: usize) -> Self {
        Self {
            scope,
            class: None,
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
