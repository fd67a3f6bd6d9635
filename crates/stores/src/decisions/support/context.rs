//! The decision in progress: its transaction, its time, and the ledger entries it records.

use domain::{
    actor::Actor,
    admin_action::AdminAction,
    challenge::Kind,
    claim::Claim,
    dead_letter::DeadLetter,
    id::{ClaimId, HolderId, Project, SolveId, WorkerName},
    ledger::{Counts, Entry, Event, Total},
    pool::Pool,
    solve::Solve,
    time::{Day, Timestamp},
};

use crate::{
    Result,
    schema::tables::{Holders, Stocked},
    tx::{TypedRead, WriteTx},
};

use super::ledger;

/// One decision in progress.
pub(crate) struct DecisionCtx<'a> {
    pub(crate) tx: &'a mut dyn WriteTx,
    pub(crate) now: Timestamp,
    /// The claims that this decision ended.
    pub(crate) ended: Vec<ClaimId>,
    entries: Vec<Entry>,
    totals: Vec<Total>,
}

/// The claim, solve, worker, project and kind that an entry is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribution {
    pub(crate) claim: Option<ClaimId>,
    pub(crate) solve: Option<SolveId>,
    pub(crate) worker: WorkerName,
    pub(crate) project: Project,
    pub(crate) kind: Option<Kind>,
}

// === impl DecisionCtx ===

impl<'a> DecisionCtx<'a> {
    /// Runs a decision, and writes the entries it recorded as one page of the ledger.
    pub(crate) fn run<T>(
        tx: &'a mut dyn WriteTx,
        now: Timestamp,
        decide: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let mut ctx = Self { tx, now, ended: Vec::new(), entries: Vec::new(), totals: Vec::new() };
        let result = decide(&mut ctx)?;
        for total in ctx.totals {
            ledger::add_to_total(ctx.tx, total)?;
        }
        if !ctx.entries.is_empty() {
            ctx.tx.append(ctx.entries)?;
        }
        Ok(result)
    }

    /// Whether the holder's lease has not expired.
    pub(crate) fn is_alive(&self, holder: HolderId) -> Result<bool> {
        Ok(self.tx.get::<Holders>(&holder)?.is_some_and(|row| self.now < row.until))
    }

    /// Records an event as a ledger entry and counts it.
    pub(crate) fn record(&mut self, about: impl Into<Attribution>, event: Event) {
        self.record_with(about, event, &Counts::default());
    }

    /// Records an event, and counts `more` in addition to what the event itself stands for.
    pub(crate) fn record_with(
        &mut self,
        about: impl Into<Attribution>,
        event: Event,
        more: &Counts,
    ) {
        let about = about.into();
        let mut counts = ledger::counts_of(&event);
        counts.add(more);
        self.count(&about, &counts);
        let Attribution { claim, solve, worker, project, kind } = about;
        let entry = Entry { seq: 0, at: self.now, claim, solve, worker, project, kind, event };
        self.entries.push(entry);
    }

    /// Adds to the totals of today, without an entry.
    pub(crate) fn count(&mut self, about: &Attribution, counts: &Counts) {
        self.count_on(self.now.day(), about, counts);
    }

    /// Adds to the totals of a day. Totals are kept by kind, and something that is about no challenge has none.
    pub(crate) fn count_on(&mut self, day: Day, about: &Attribution, counts: &Counts) {
        let Some(kind) = about.kind.as_ref().filter(|_| *counts != Counts::default()) else {
            return;
        };
        let (worker, project) = (about.worker.clone(), about.project.clone());
        self.totals.push(Total::new(day, worker, project, kind.in_totals(), *counts));
    }

    /// Records what an admin did. A worker acts for itself, which the entries about its claim say already.
    pub(crate) fn administered(
        &mut self,
        about: impl Into<Attribution>,
        by: &Actor,
        action: AdminAction,
    ) {
        if by.is_admin() {
            self.record(about, Event::Administered { by: by.clone(), action });
        }
    }

    pub(crate) fn record_all(&mut self, about: &Solve, events: Vec<Event>) {
        for event in events {
            self.record(about, event);
        }
    }
}

// === impl Attribution ===

impl Attribution {
    /// What the gateway did by itself, about no worker's work.
    pub(crate) fn gateway() -> Self {
        Self::of_nobody(WorkerName::nobody())
    }

    /// About no work; `who` did or asked it.
    pub(crate) fn of_nobody(who: WorkerName) -> Self {
        Self { claim: None, solve: None, worker: who, project: Project::nobody(), kind: None }
    }

    fn new(
        claim: Option<ClaimId>,
        solve: Option<SolveId>,
        worker: &WorkerName,
        project: &Project,
        kind: &Kind,
    ) -> Self {
        let (worker, project) = (worker.clone(), project.clone());
        Self { claim, solve, worker, project, kind: Some(kind.clone()) }
    }
}

impl From<&Claim> for Attribution {
    fn from(claim: &Claim) -> Self {
        Self::new(Some(claim.id), claim.solve, &claim.worker, &claim.project, &claim.kind)
    }
}

impl From<&Solve> for Attribution {
    fn from(solve: &Solve) -> Self {
        Self::new(None, Some(solve.id), &solve.worker, &solve.project, &solve.kind)
    }
}

impl From<&DeadLetter> for Attribution {
    fn from(letter: &DeadLetter) -> Self {
        Self::new(None, Some(letter.id), &letter.worker, &letter.project, &letter.kind)
    }
}

impl From<&Pool> for Attribution {
    fn from(pool: &Pool) -> Self {
        let order = &pool.order;
        Self::new(None, None, &order.worker, &order.project, order.challenge.kind())
    }
}

impl From<&Stocked> for Attribution {
    fn from(stocked: &Stocked) -> Self {
        let solve = Some(stocked.token.solve);
        Self::new(None, solve, &stocked.worker, &stocked.project, &stocked.kind)
    }
}
