//! A schedule of which each of three gateways performs a part, all at the same time. Each part is about challenges of its own,
//! so its answers and the history of its claims do not depend on the others; the sums and the ledger are everybody's. The
//! model performs the parts one after the other.

use std::collections::BTreeSet;

use domain::{
    claim::{Claim, NewClaim},
    declarations::Guard,
    id::{HolderId, Nonce, WorkerName},
    lease::{Holder, Lease},
    ledger::{Entry, Event},
    retry::Verdict,
    solve::{Decision, Fact, Stage},
    time::Timestamp,
};
use store_tests::{World, accepted, check, named, over, refused};
use stores::Backend;
use tokio::task::JoinSet;

use super::{
    Act, Plan,
    perform::{claims, lists_and_sums, perform},
};
use crate::{connect, prefix};

/// An act, when it happens, and the answer of the model.
struct Step {
    act: Act,
    now: Timestamp,
    expected: String,
}

const GATEWAYS: u64 = 3;
const STEPS: usize = 120;

/// Runs a schedule for each seed and returns the events that occurred.
pub(crate) async fn compare_side_by_side(seeds: u64, url: &str) -> BTreeSet<String> {
    let mut happened = BTreeSet::new();
    for seed in 0..seeds {
        eprintln!("seed {seed}");
        happened.extend(compare(seed, url).await);
    }
    happened
}

async fn compare(seed: u64, url: &str) -> BTreeSet<String> {
    let model = stores::open("memory:").unwrap();
    let world = World::new(&model);
    hold_for_ever(&model).await;
    let mut parts = Vec::new();
    for part in 1..=GATEWAYS {
        parts.push(planned(&model, &world, seed * GATEWAYS + part, part).await);
    }
    let prefix = prefix();
    let other = connect(url, &prefix).await;
    hold_for_ever(&other).await;
    let mut running = JoinSet::new();
    for steps in parts {
        running.spawn(follow(connect(url, &prefix).await, steps));
    }
    running.join_all().await;
    same_outcome(&other, &model, world.now()).await;
    check(other.records.as_ref()).await;
    let entries = other.records.entries(0, usize::MAX).await.unwrap();
    let name = |event: &Event| format!("{event:?}").split([' ', '{']).next().unwrap().to_owned();
    entries.iter().map(|entry| name(&entry.event)).collect()
}

/// One holder for each part, whose leases do not end. What a gateway hears at a renewal depends on the others.
async fn hold_for_ever(on: &Backend) {
    for part in 1..=GATEWAYS {
        let holder = Holder::apart(HolderId::from_number(part), Timestamp::from_millis(u64::MAX));
        on.store.hold(holder).await.unwrap();
    }
}

/// Draws a part and performs it on the model.
async fn planned(model: &Backend, world: &World, seed: u64, part: u64) -> Vec<Step> {
    let mut plan = Plan::new(seed);
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        world.tick();
        let (act, now) = (plan.next_of(part, world), world.now());
        let expected = perform(model, act.clone(), now, Some(&mut plan)).await;
        steps.push(Step { act, now, expected });
    }
    steps
}

/// Performs a part at a gateway.
async fn follow(gateway: Backend, steps: Vec<Step>) {
    for (number, Step { act, now, expected }) in steps.into_iter().enumerate() {
        let answer = perform(&gateway, act.clone(), now, None).await;
        assert_eq!(answer, expected, "step {number}: {act:?}");
    }
}

/// Compares the lists, the sums and every claim with its history. Only the numbers of the ledger depend on the order.
async fn same_outcome(other: &Backend, model: &Backend, now: Timestamp) {
    let (actual, expected) = (lists_and_sums(other, now).await, lists_and_sums(model, now).await);
    for (actual, expected) in actual.iter().zip(&expected) {
        assert_eq!(actual, expected);
    }
    let (actual, expected) = (claims(other).await, claims(model).await);
    assert_eq!(actual, expected);
    for claim in &expected {
        assert_eq!(history(other, claim).await, history(model, claim).await, "{claim:?}");
    }
}

async fn history(on: &Backend, claim: &Claim) -> Vec<Entry> {
    let entries = on.records.explain(claim.id).await.unwrap();
    entries.into_iter().map(|entry| Entry { seq: 0, ..entry }).collect()
}

// === impl Plan ===

impl Plan {
    /// The next act of a part. Nothing in it is about all solves of the store, or about a limit that the parts share.
    fn next_of(&mut self, part: u64, world: &World) -> Act {
        let (claim, lease) = (self.claim(), self.lease());
        match (self.chance.u8(0..20), claim, lease) {
            (0..2, Some(claim), _) => Act::Fetch(claim.id),
            (2, Some(claim), _) => Act::Withdraw(claim.id),
            (3, Some(claim), _) if claim.solve.is_some() => {
                Act::Revive(Box::new(world.revive(&claim)))
            }
            (4..8, Some(Claim { solve: Some(solve), .. }), _) => {
                Act::LeaseOne(HolderId::from_number(part), solve)
            }
            (8..11, _, Some(lease)) => self.decide_freely(lease),
            (11..16, _, Some(lease)) => self.settle_of(&lease, world),
            _ => Act::Admit(Box::new(self.claim_of(part, world))),
        }
    }

    fn claim_of(&mut self, part: u64, world: &World) -> NewClaim {
        let site = format!("{part}-{}", self.chance.u8(0..3));
        let mut new = match self.chance.u8(0..4) {
            0 => world.image(site.as_bytes()),
            _ => world.turnstile(&site),
        };
        // Workers are shared, so that the gateways add to the same sums.
        new.worker = WorkerName::new(["ann", "bob"][self.chance.usize(0..2)]).unwrap();
        new.collect = self.chance.bool();
        if self.chance.u8(0..3) == 0 {
            new.key = named(&new, &format!("{part}-{}", self.chance.u8(0..6)));
        }
        new
    }

    fn decide_freely(&mut self, lease: Lease) -> Act {
        let decision = match lease.solve.stage {
            Stage::Ambiguous => Decision::WriteOff,
            _ => Decision::Intend {
                guard: Guard::open(),
                nonce: Nonce::from_number(self.chance.u64(1..)),
            },
        };
        Act::Decide(Box::new(lease), decision)
    }

    fn settle_of(&mut self, lease: &Lease, world: &World) -> Act {
        let (solve, attempt) = (lease.solve.id, lease.solve.attempt);
        let task = format!("t{solve}-{attempt}");
        let verdict = if self.chance.bool() {
            Verdict::GiveUp
        } else {
            Verdict::Again { due: world.now(), counted: true }
        };
        let fact = match self.chance.u8(0..20) {
            0..8 => accepted(&task),
            8..16 => world.solved(&task),
            16 => refused("ERROR_NO_SLOT_AVAILABLE", verdict),
            17 | 18 => over("ERROR_CAPTCHA_UNSOLVABLE", verdict),
            _ => Fact::ReplyLost { why: "reset".into(), due: world.now() },
        };
        Act::Settle(solve, attempt, fact)
    }
}
