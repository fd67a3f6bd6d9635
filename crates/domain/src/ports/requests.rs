//! The arguments of the store's larger decisions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    actor::Actor,
    challenge::Kind,
    claim::Allowance,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Project, SolveId, WorkerName},
    ledger::Event,
    money::Money,
    pause::PauseScope,
    pool::Target,
    retry::Code,
    solve::Policy,
    time::Timestamp,
};

use super::archive::History;

/// Which solves a process wants to lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest {
    /// The process. It gets nothing unless it holds its own lease.
    pub holder: HolderId,
    /// The most solves it takes.
    pub limit: usize,
    /// Take this solve and no other. A serverless invocation that runs for one solve leaves the rest to others.
    pub only: Option<SolveId>,
}

/// What a sweep may do.
#[derive(Clone, Debug)]
pub struct SweepRequest {
    /// The most records of each table that one sweep touches.
    pub limit: usize,
    /// What the account or the provider has, while a circuit breaker is open. Claims that lapse in the queue meanwhile end
    /// with this code instead of "deadline".
    pub trouble: Option<Code>,
    /// Where history is kept for long. The store deletes what an archive has one day after its end.
    pub history: History,
}

/// A dead letter to revive, and on which terms.
#[derive(Clone, Debug)]
pub struct ReviveRequest {
    /// The id of the dead letter.
    pub letter: SolveId,
    /// Who revives it.
    pub by: Actor,
    /// New ids, one for each claim of the letter.
    pub claims: Vec<ClaimId>,
    /// A new id for the solve, if one is opened.
    pub solve: SolveId,
    /// Why solving for its page is allowed under today's declarations.
    pub basis: Arc<str>,
    /// When the claims lapse.
    pub deadline: Timestamp,
    /// The list price of a solve of its kind.
    pub price: Option<Money>,
    /// The budget of each configured worker. Claims of workers that are not listed stay dead.
    pub allowances: BTreeMap<WorkerName, Allowance>,
    /// The budget of the account.
    pub account: Allowance,
    /// The policy of the solve that is opened.
    pub policy: Policy,
}

/// What a pool's controller orders.
#[derive(Clone, Debug)]
pub struct RefillRequest {
    /// The fingerprint of the pool.
    pub pool: Fingerprint,
    /// The controller. It must hold its own lease.
    pub holder: HolderId,
    /// The stock level it aims at.
    pub target: Target,
    /// New ids for the solves; the store opens at most this many.
    pub solves: Vec<SolveId>,
    /// Orders that were not submitted by then lapse.
    pub wanted_until: Timestamp,
    /// The list price of one solve.
    pub price: Option<Money>,
    /// The budget of the pool.
    pub budget: Allowance,
    /// The budget of the account.
    pub account: Allowance,
}

/// Pauses or resumes submissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseRequest {
    /// The scope. It is resumed as it was paused: resuming everything leaves the pauses of sites and workers.
    pub scope: PauseScope,
    /// Whether it is to be paused.
    pub paused: bool,
    /// Who asks, and from where, for the audit trail.
    pub by: Actor,
}

/// A ledger entry without a change of state: a refusal or a report.
#[derive(Clone, Debug)]
pub struct Note {
    /// The claim it is about, if one exists.
    pub claim: Option<ClaimId>,
    /// The worker that sent the request.
    pub worker: WorkerName,
    /// The project the request is charged to.
    pub project: Project,
    /// The kind of challenge, if the request got that far.
    pub kind: Option<Kind>,
    /// The refusal or the report.
    pub event: Event,
    /// The admin who acts in place of the worker.
    pub by: Option<Actor>,
}

impl SweepRequest {
    /// A sweep of a store that keeps its own history, while the account has no trouble.
    pub fn plain(limit: usize) -> Self {
        Self { limit, trouble: None, history: History::InStore }
    }
}

impl LeaseRequest {
    /// How long a process's lease lasts.
    pub const TERM: Duration = Duration::from_secs(15);

    /// Any solves that are due, at most `limit`.
    pub fn any(holder: HolderId, limit: usize) -> Self {
        Self { holder, limit, only: None }
    }

    /// One solve and no other.
    pub fn only(holder: HolderId, solve: SolveId) -> Self {
        Self { holder, limit: 1, only: Some(solve) }
    }
}
