//! Fills a store as it fills in life, through the `Store` port: one holder at one moment, so that no lease ends on the way.

use std::{future::Future, sync::Arc, time::Duration};

use domain::{
    challenge::Challenge,
    claim::{Admission, Allowance, Door, KeyRule, NewClaim},
    fingerprint::{Fingerprint, Identity},
    id::{ClaimId, HolderId, Nonce, SolveId, TaskId},
    lease::{Holder, Lease},
    money::Money,
    ports::{Chance, Clock, LeaseAsk, Store},
    secret::Secret,
    solve::{Decision, Fact, Policy, Solved},
    time::Timestamp,
    token::{Answer, ShelfLife},
};
use futures_util::{TryStreamExt as _, stream};

use super::{
    challenges::BASIS,
    server::{project, worker_name},
};
use crate::exit::{Exit, Failure};

/// Who fills, and when.
pub(super) struct Filler<'p> {
    store: &'p dyn Store,
    chance: &'p dyn Chance,
    holder: HolderId,
    pub(super) now: Timestamp,
}

/// Longer than any bench.
const LIFETIME: Duration = Duration::from_secs(7200);
const MARGIN: Duration = Duration::from_secs(60);
const LEASES: usize = 1000;
const SIDE_BY_SIDE: usize = 64;

/// A store on a server takes many decisions in one call: they are asked for side by side.
pub(super) async fn together<F>(all: impl Iterator<Item = F>) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    stream::iter(all.map(Ok)).try_for_each_concurrent(SIDE_BY_SIDE, |one| one).await
}

impl<'p> Filler<'p> {
    /// Takes a holder's place.
    pub(super) async fn start(
        store: &'p dyn Store,
        clock: &dyn Clock,
        chance: &'p dyn Chance,
    ) -> Result<Self, Failure> {
        let filler = Self { store, chance, holder: HolderId::draw(chance), now: clock.now() };
        let until = filler.now.plus(LeaseAsk::TERM);
        let held = store.hold(Holder { id: filler.holder, until }, filler.now).await;
        held.map_err(Failure::of(Exit::Failed))?;
        Ok(filler)
    }

    /// A new claim, which opens a solve.
    pub(super) async fn open(&self, challenge: Challenge) -> Result<ClaimId, Failure> {
        let new = self.new_claim(challenge)?;
        match self.store.admit(new, self.now).await.map_err(Failure::of(Exit::Failed))? {
            Admission::Opened(claim) => Ok(claim.id),
            other @ (Admission::Replayed(_)
            | Admission::Stocked(_)
            | Admission::Joined(_)
            | Admission::Mismatch(_)
            | Admission::OverBudget { .. }
            | Admission::TooLate
            | Admission::NameTaken) => {
                Err(Failure::new(Exit::Failed, format!("no solve was opened: {other:?}")))
            }
        }
    }

    fn new_claim(&self, challenge: Challenge) -> Result<NewClaim, Failure> {
        let fingerprint = Fingerprint::of(&challenge, Identity::default());
        Ok(NewClaim {
            id: ClaimId::draw(self.chance, &fingerprint),
            solve: SolveId::draw(self.chance, &fingerprint),
            worker: worker_name()?,
            project: project()?,
            door: Door::V1,
            challenge: Arc::new(challenge),
            fingerprint,
            basis: BASIS.into(),
            key: KeyRule::Own,
            deadline: self.now.plus(LIFETIME),
            price: Some(Money::from_micros(1_450)),
            allowance: Allowance::default(),
            policy: Policy::default(),
            collect: false,
            callback_url: None,
            soonest: self.now,
            revives: None,
        })
    }

    /// Takes a claim back.
    pub(super) async fn take_back(&self, claim: ClaimId) -> Result<(), Failure> {
        self.store.withdraw(claim, self.now).await.map_err(Failure::of(Exit::Failed))?;
        Ok(())
    }

    /// Intends to submit everything that is due.
    pub(super) async fn intend(&self) -> Result<Vec<Lease>, Failure> {
        let ask = LeaseAsk::any(self.holder, LEASES);
        let mut all = Vec::new();
        loop {
            let leases =
                self.store.lease(ask, self.now).await.map_err(Failure::of(Exit::Failed))?;
            if leases.is_empty() {
                return Ok(all);
            }
            together(leases.iter().map(async |lease| {
                let decision = Decision::Intend { nonce: Nonce::draw(self.chance) };
                let decided = self.store.advance(lease, decision, self.now).await;
                decided.map_err(Failure::of(Exit::Failed))?.map_err(Failure::of(Exit::Failed))?;
                Ok(())
            }))
            .await?;
            all.extend(leases);
        }
    }

    /// The provider takes it.
    pub(super) async fn accept(&self, lease: &Lease) -> Result<(), Failure> {
        self.tell(lease, Fact::Accepted { task: task_of(lease)?, sent_at: self.now }).await
    }

    /// The provider has solved it.
    pub(super) async fn solve(&self, lease: &Lease) -> Result<(), Failure> {
        let life = ShelfLife::new(LIFETIME, MARGIN).map_err(Failure::of(Exit::Failed))?;
        let text = Secret::new(format!("0.mF4b1kR9t2Xc7Q0sVvJ8yZ3nL5h{}", lease.solve.id));
        let solved = Solved {
            task: task_of(lease)?,
            answer: Answer { text, is_json: false, extras: None },
            ready_lower: self.now,
            life,
            cost: lease.solve.price,
            polls: 2,
        };
        self.tell(lease, Fact::Solved(solved)).await
    }

    async fn tell(&self, lease: &Lease, fact: Fact) -> Result<(), Failure> {
        let settled = self.store.settle(lease.solve.id, 1, fact, self.now).await;
        settled.map_err(Failure::of(Exit::Failed))?;
        Ok(())
    }
}

fn task_of(lease: &Lease) -> Result<TaskId, Failure> {
    TaskId::new(lease.solve.id.number().to_string()).map_err(Failure::of(Exit::Failed))
}
