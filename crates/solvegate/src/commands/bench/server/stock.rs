//! Fills the stock as it fills in life, through the `Store` port: claims that were taken back after the money had left.

use std::{sync::Arc, time::Duration};

use domain::{
    claim::{Admission, Allowance, Door, KeyRule, NewClaim},
    fingerprint::{Fingerprint, Identity},
    id::{ClaimId, HolderId, Nonce, SolveId, TaskId},
    lease::{Holder, Lease},
    money::Money,
    ports::{Chance, Clock, LeaseAsk, Store},
    secret::Secret,
    solve::{Decision, Fact, Origin, Policy, Solved},
    time::Timestamp,
    token::{Answer, ShelfLife},
};

use super::{
    super::challenges::challenge,
    gateway::{project, worker_name},
};
use crate::exit::{Exit, Failure};

/// Who fills, and when: one moment for all of it, so that no lease ends on the way.
struct Filler<'p> {
    store: &'p dyn Store,
    chance: &'p dyn Chance,
    holder: HolderId,
    now: Timestamp,
}

/// Longer than any bench.
const LIFETIME: Duration = Duration::from_secs(7200);
const MARGIN: Duration = Duration::from_secs(60);
const LEASES: usize = 1000;

/// Puts `count` tokens into the stock of the benches' challenge.
pub(super) async fn fill(
    store: &dyn Store,
    clock: &dyn Clock,
    chance: &dyn Chance,
    count: usize,
) -> Result<(), Failure> {
    let filler = Filler { store, chance, holder: HolderId::draw(chance), now: clock.now() };
    let failed = Failure::of(Exit::Failed);
    let until = filler.now.plus(LeaseAsk::TERM);
    store.hold(Holder { id: filler.holder, until }, filler.now).await.map_err(failed)?;
    for _ in 0..count {
        filler.open().await?;
    }
    // All are on their way before the first is taken back, and all are taken back before the first is solved: a
    // token goes to whoever waits, and only when nobody does to the stock.
    let leases = filler.intend().await?;
    for lease in &leases {
        filler.take_back(lease).await?;
    }
    for (number, lease) in leases.iter().enumerate() {
        filler.solve(lease, number).await?;
    }
    Ok(())
}

// === impl Filler ===

impl Filler<'_> {
    async fn open(&self) -> Result<(), Failure> {
        let new = self.new_claim()?;
        match self.store.admit(new, self.now).await.map_err(Failure::of(Exit::Failed))? {
            Admission::Opened(_) => Ok(()),
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

    fn new_claim(&self) -> Result<NewClaim, Failure> {
        let challenge = challenge()?;
        let fingerprint = Fingerprint::of(&challenge, Identity::default());
        Ok(NewClaim {
            id: ClaimId::draw(self.chance, &fingerprint),
            solve: SolveId::draw(self.chance, &fingerprint),
            worker: worker_name()?,
            project: project()?,
            door: Door::V1,
            challenge: Arc::new(challenge),
            fingerprint,
            basis: "own shop, bench".into(),
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

    async fn intend(&self) -> Result<Vec<Lease>, Failure> {
        let ask = LeaseAsk { holder: self.holder, limit: LEASES };
        let mut all = Vec::new();
        loop {
            let leases =
                self.store.lease(ask, self.now).await.map_err(Failure::of(Exit::Failed))?;
            if leases.is_empty() {
                return Ok(all);
            }
            for lease in &leases {
                let decision = Decision::Intend { nonce: Nonce::draw(self.chance) };
                let decided = self.store.advance(lease, decision, self.now).await;
                decided.map_err(Failure::of(Exit::Failed))?.map_err(Failure::of(Exit::Failed))?;
            }
            all.extend(leases);
        }
    }

    async fn take_back(&self, lease: &Lease) -> Result<(), Failure> {
        let Origin::Claim(claim) = lease.solve.origin else { return Ok(()) };
        self.store.withdraw(claim, self.now).await.map_err(Failure::of(Exit::Failed))?;
        Ok(())
    }

    async fn solve(&self, lease: &Lease, number: usize) -> Result<(), Failure> {
        let task = TaskId::new(format!("{number:012}")).map_err(Failure::of(Exit::Failed))?;
        let life = ShelfLife::new(LIFETIME, MARGIN).map_err(Failure::of(Exit::Failed))?;
        let text = Secret::new(format!("0.mF4b1kR9t2Xc7Q0sVvJ8yZ3nL5h{number:012}"));
        let solved = Solved {
            task: task.clone(),
            answer: Answer { text, is_json: false, extras: None },
            ready_lower: self.now,
            life,
            cost: lease.solve.price,
            polls: 2,
        };
        for fact in [Fact::Accepted { task, sent_at: self.now }, Fact::Solved(solved)] {
            let settled = self.store.settle(lease.solve.id, 1, fact, self.now).await;
            settled.map_err(Failure::of(Exit::Failed))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use domain::ports::Records as _;
    use stores::MemoryStore;

    use super::*;
    use crate::{chance::SystemChance, clock::SystemClock};

    #[tokio::test]
    async fn every_token_ends_in_stock() {
        let (store, clock) = (MemoryStore::new(), SystemClock::start());
        let chance = SystemChance::start().unwrap();
        fill(&store, &clock, &chance, 2 * LEASES + 1).await.unwrap();
        let levels = store.stock_levels(clock.now()).await.unwrap();
        assert_eq!(levels.iter().map(|level| level.usable).collect::<Vec<_>>(), [2 * LEASES + 1]);
    }
}
