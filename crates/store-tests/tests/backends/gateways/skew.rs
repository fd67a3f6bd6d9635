//! Gateways whose clocks differ. A holder renews its lease of 15 s every 5 s, so another gateway's clock may be up to
//! 10 s ahead without taking a living holder for dead. Beyond that it does, and still nothing is paid twice.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use domain::{
    claim::Claim,
    id::{HolderId, Nonce},
    lease::{Holder, Lease},
    ledger::Event,
    ports::{Advanced, Clock, LeaseRequest, StoreError},
    solve::{Decision, Refused, Stage},
    time::Timestamp,
};
use store_tests::{accepted, token_of};
use stores::Weight;

use crate::{connect, prefix};

use super::{Gateway, gateways};

/// The engine's renewal interval.
const RENEWAL: Duration = Duration::from_secs(LeaseRequest::TERM.as_secs() / 3);
/// Clocks must differ by less than this.
const ALLOWANCE: Duration = Duration::from_secs(10);

const OURS: HolderId = HolderId::from_number(1);
const THEIRS: HolderId = HolderId::from_number(2);

async fn hold(at: &Gateway, id: HolderId, now: Timestamp) {
    let holder = Holder::apart(id, now.plus(LeaseRequest::TERM));
    at.backend.store.hold(holder).await.expect("the server is up");
}

async fn lease(at: &Gateway, holder: HolderId, now: Timestamp) -> Vec<Lease> {
    let ask = LeaseRequest::any(holder, 100);
    at.backend.store.lease(ask, now).await.expect("the server is up")
}

/// The leases that a gateway whose clock is ahead takes, within a minute, from a holder that renews in time.
async fn taken_by_one_ahead(url: &str, skew: Duration) -> Vec<Lease> {
    let both = gateways(url, &prefix(), 2).await;
    let (ours, ahead) = (&both[0], &both[1]);
    let world = &ours.world;
    let claims = [world.open(world.turnstile("a")).await, world.open(world.turnstile("b")).await];
    hold(ours, OURS, world.now()).await;
    let held = lease(ours, OURS, world.now()).await;
    assert_eq!(held.len(), claims.len());
    // One of them is submitted, because tasks are taken over first.
    world.intend(&held[0]).await.expect("its lease is good");
    world.settle(held[0].solve.id, 1, accepted("t1")).await;
    let mut taken = Vec::new();
    for _ in 0..12 {
        world.pass(RENEWAL.as_secs());
        // The other gateway leases in the last moment before the renewal.
        let theirs = world.now().plus(skew);
        hold(ahead, THEIRS, theirs).await;
        taken.extend(lease(ahead, THEIRS, theirs).await);
        hold(ours, OURS, world.now()).await;
    }
    taken
}

pub(crate) async fn below_ten_seconds(url: &str) {
    let just = ALLOWANCE.checked_sub(Duration::from_millis(1)).expect("it is more than that");
    for skew in [Duration::ZERO, Duration::from_secs(9), just] {
        assert!(taken_by_one_ahead(url, skew).await.is_empty(), "a clock {skew:?} ahead");
    }
    assert_eq!(ALLOWANCE + RENEWAL, LeaseRequest::TERM);
    assert!(!taken_by_one_ahead(url, ALLOWANCE).await.is_empty(), "the allowance is not more");
}

/// A clock that is off by some seconds.
#[derive(Debug)]
pub(crate) struct OffClock(pub(crate) i64);

#[async_trait]
impl Clock for OffClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock port")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let now = Timestamp::default().plus(since_epoch);
        let by = Duration::from_secs(self.0.unsigned_abs());
        if self.0 < 0 { now.minus(by) } else { now.plus(by) }
    }

    async fn sleep_until(&self, _: Timestamp) {}
}

/// The server says what time it is: a gateway up to four seconds off works, one that is an hour off decides nothing.
pub(crate) async fn a_clock_an_hour_off_is_refused(url: &str) {
    for off in [0, 4, -4] {
        let right = connect(url, &prefix()).await;
        right.timing.follow(Arc::new(OffClock(off)));
        right.store.compare_clock().await.unwrap_or_else(|error| panic!("{off} s: {error}"));
        right
            .store
            .hold(Holder::apart(OURS, Timestamp::from_millis(u64::MAX)))
            .await
            .expect("it is right");
    }
    for off in [3_600, -3_600] {
        let wrong = connect(url, &prefix()).await;
        wrong.timing.follow(Arc::new(OffClock(off)));
        let compared = wrong.store.compare_clock().await;
        assert!(matches!(compared, Err(StoreError::WrongClock(_))), "{off} s: {compared:?}");
        let held = wrong.store.hold(Holder::apart(OURS, Timestamp::from_millis(u64::MAX))).await;
        assert!(matches!(held, Err(StoreError::WrongClock(_))), "{off} s: {held:?}");
    }
}

/// `doctor` compares the clocks before a gateway starts.
pub(crate) async fn doctor_names_a_clock_that_is_off(url: &str) {
    for (off, weight) in [(0, Weight::Good), (-3_600, Weight::Bad), (3_600, Weight::Bad)] {
        let findings = stores::examine(url, &OffClock(off)).await.expect("it answers");
        let clock = findings.iter().find(|one| one.what.contains("clock"));
        let clock = clock.unwrap_or_else(|| panic!("nothing about clocks in {findings:?}"));
        assert_eq!(clock.weight, weight, "{off} s: {clock:?}");
        let is_ahead = clock.what.contains("ahead of the server's");
        assert!(off == 0 || is_ahead == (off > 0), "{clock:?}");
    }
}

/// A gateway 16 s ahead takes over everything from a holder that has just renewed. That holder goes on by its own
/// clock, and all its decisions are refused.
pub(crate) async fn sixteen_seconds_ahead(url: &str) {
    let both = gateways(url, &prefix(), 2).await;
    let (ours, ahead) = (&both[0], &both[1]);
    let world = &ours.world;
    let queued = world.open(world.turnstile("a")).await;
    let intended = world.open(world.turnstile("b")).await;
    let submitted = world.open(world.turnstile("c")).await;
    hold(ours, OURS, world.now()).await;
    let held = lease(ours, OURS, world.now()).await;
    let of = |leases: &[Lease], claim: &Claim| {
        let mine = leases.iter().find(|lease| Some(lease.solve.id) == claim.solve);
        mine.expect("it is leased").clone()
    };
    world.intend(&of(&held, &intended)).await.expect("its lease is good");
    world.intend(&of(&held, &submitted)).await.expect("its lease is good");
    world.settle(of(&held, &submitted).solve.id, 1, accepted("t3")).await;

    hold(ours, OURS, world.now()).await;
    let theirs = world.now().plus(Duration::from_secs(16));
    hold(ahead, THEIRS, theirs).await;
    let taken = lease(ahead, THEIRS, theirs).await;
    assert_eq!(taken.len(), 3);
    assert_eq!(
        of(&taken, &intended).solve.stage,
        Stage::Ambiguous,
        "it is unknown whether it was sent"
    );
    assert_eq!(of(&taken, &submitted).solve.stage, Stage::Submitted, "the task is asked for on");

    for lease in &held {
        let refused = world.intend(lease).await;
        assert_eq!(refused, Err(Refused::LeaseLost));
        assert_eq!(world.authorise(lease).await, Err(Refused::LeaseLost));
        assert_eq!(world.decide(lease, Decision::WriteOff).await, Err(Refused::LeaseLost));
    }
    let intent = Decision::Intend {
        guard: domain::declarations::Guard::open(),
        nonce: Nonce::from_number(77),
    };
    let goes_on = ahead.backend.store.advance(&of(&taken, &queued), intent, theirs).await;
    assert!(matches!(goes_on, Ok(Advanced::Done(_))), "{goes_on:?}");

    // Facts of the old holder still count: here the reply it was waiting for.
    assert!(world.settle(of(&taken, &intended).solve.id, 1, accepted("t2")).await.fresh);
    for (claim, task) in [(&queued, "t1"), (&intended, "t2"), (&submitted, "t3")] {
        let solve = claim.solve.expect("it was opened");
        // Both holders settle the same facts.
        ahead.world.settle(solve, 1, accepted(task)).await;
        world.settle(solve, 1, world.solved(task)).await;
        assert!(!ahead.world.settle(solve, 1, world.solved(task)).await.fresh);
        assert_eq!(token_of(&world.find(claim).await), Some(format!("token-{task}").as_str()));
    }
    assert_eq!(world.count(|event| matches!(event, Event::Intent { .. })).await, 3);
    assert_eq!(world.count(|event| matches!(event, Event::Accepted { .. })).await, 3);
    assert_eq!(world.count(|event| matches!(event, Event::Authorised { .. })).await, 0);
    store_tests::check(world.records.as_ref()).await;
}
