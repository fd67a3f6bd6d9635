//! What callers may repeat without end: it leaves no entry and no row for each time.

use std::sync::Arc;

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Admission, Claim, Repeats},
    fingerprint::{Fingerprint, Identity},
    id::{HolderId, Place},
    lease::Holder,
    ledger::{Counts, Event},
    money::Money,
    ports::{Chance, LeaseRequest, Note, Scope, TotalsFilter},
    site::PageUrl,
};

use crate::{PRICE, World, named};

async fn counts(world: &World) -> Counts {
    let day = world.now().day();
    let ask = TotalsFilter { scope: Scope::All, from: day, to: day };
    let mut sum = Counts::default();
    for total in world.records.totals(ask).await.unwrap() {
        sum.add(&total.counts);
    }
    sum
}

pub(super) async fn a_token_fetched_again_and_again_is_one_entry(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    world.fetch(&claim).await;
    let before = world.entries().await;
    for _ in 0..50 {
        world.fetch(&claim).await;
    }
    assert_eq!(world.entries().await, before);
    let unknown = world.turnstile("x").id;
    for _ in 0..2 {
        world.store.count_fetches(vec![(claim.id, 25), (unknown, 7)]).await.unwrap();
    }
    let repeats = Repeats { fetched: 50, replayed: 0 };
    assert_eq!(world.store.repeats(claim.id).await.unwrap(), repeats);
    assert_eq!(world.store.repeats(unknown).await.unwrap(), Repeats::default());
    assert_eq!(world.entries().await, before);
}

pub(super) async fn a_key_repeated_again_and_again_is_one_entry_and_counted_right(world: World) {
    let with_key = || {
        let mut new = world.turnstile("a");
        new.key = named(&new, "k");
        new.collect = true;
        new
    };
    let claim = world.serve(with_key(), "t1").await;
    for _ in 0..20 {
        assert!(matches!(world.admit(with_key()).await, Admission::Replayed(_)));
    }
    assert_eq!(world.count(|event| matches!(event, Event::Replayed)).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Delivered { .. })).await, 1);
    let Counts { claims, replayed, saved, .. } = counts(&world).await;
    assert_eq!((claims, replayed, saved), (1, 20, Money::from_micros(20 * PRICE.micros())));
    let repeats = Repeats { fetched: 0, replayed: 20 };
    assert_eq!(world.store.repeats(claim.id).await.unwrap(), repeats);
}

pub(super) async fn the_counts_of_a_claim_go_with_the_claim(world: World) {
    let mut new = world.turnstile("a");
    new.key = named(&new, "k");
    let claim = world.serve(new.clone(), "t1").await;
    let mut again = world.turnstile("a");
    again.key = new.key;
    assert!(matches!(world.admit(again).await, Admission::Replayed(_)));
    let report = Note { event: Event::Reported { good: false }, ..report(&claim) };
    assert!(world.store.note(report, world.now()).await.unwrap());
    assert_eq!(world.store.memos("re").await.unwrap().len(), 2);
    world.pass_days(91);
    world.open(world.turnstile("b")).await;
    for _ in 0..3 {
        world.sweep().await;
    }
    assert!(world.store.find_claim(claim.id).await.unwrap().is_none());
    assert_eq!(world.store.memos("re").await.unwrap(), []);
}

fn report(claim: &Claim) -> Note {
    Note {
        claim: Some(claim.id),
        worker: claim.worker.clone(),
        project: claim.project.clone(),
        kind: Some(claim.kind.clone()),
        event: Event::Reported { good: true },
        by: None,
    }
}

pub(super) async fn five_claims_of_one_task_make_one_report_to_the_provider(world: World) {
    let first = world.open(world.image(b"one picture")).await;
    let mut claims = vec![first.clone()];
    for _ in 0..4 {
        match world.admit(world.image(b"one picture")).await {
            Admission::Joined(claim) => claims.push(claim),
            other => panic!("expected a join, got {other:?}"),
        }
    }
    world.submit(&first, "t1").await;
    world.settle(first.solve.unwrap(), 1, world.solved("t1")).await;
    let mut passed_on = 0;
    for claim in &claims {
        for _ in 0..2 {
            passed_on += usize::from(world.store.note(report(claim), world.now()).await.unwrap());
        }
    }
    assert_eq!(passed_on, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Reported { .. })).await, 5);
}

pub(super) async fn unknown_kinds_share_one_row_of_the_totals(world: World) {
    for n in 0..10 {
        let pageurl = Some(PageUrl::parse("https://shop.example.com/login").unwrap());
        let parts = ChallengeParts { pageurl, ..ChallengeParts::default() };
        let kind: Kind = format!("invented_{n}").parse().unwrap();
        let challenge = Challenge::new(kind, parts).unwrap();
        let mut new = world.turnstile("a");
        new.fingerprint = Fingerprint::of(&challenge, Identity::default());
        new.challenge = Arc::new(challenge);
        world.open(new).await;
    }
    let day = world.now().day();
    let ask = TotalsFilter { scope: Scope::All, from: day, to: day };
    let totals = world.records.totals(ask).await.unwrap();
    assert_eq!(totals.len(), 1);
    assert_eq!((totals[0].kind.name(), totals[0].counts.opened), ("other", 10));
}

pub(super) async fn a_lease_leaves_the_pictures_in_the_store(world: World) {
    let new = world.image(&[7; 1000]);
    let claim = world.open(new.clone()).await;
    let lease = world.lease_of(&claim).await;
    assert_eq!((lease.file_bytes, lease.challenge.file_bytes()), (1000, 0));
    assert_eq!(lease.challenge.kind(), new.challenge.kind());
    let found = world.store.find_challenge(lease.solve.id).await.unwrap();
    assert_eq!(found, Some(new.challenge));
    let unknown = world.turnstile("x").solve;
    assert_eq!(world.store.find_challenge(unknown).await.unwrap(), None);
}

pub(super) async fn a_renewal_counts_the_living_holders(world: World) {
    let hold = async |number: u64| {
        let until = world.now().plus(LeaseRequest::TERM);
        let id = HolderId::from_number(number);
        world.store.hold(Holder::apart(id, until)).await.unwrap().gateways
    };
    assert_eq!(hold(1).await, 1);
    assert_eq!((hold(2).await, hold(2).await, hold(3).await), (2, 2, 3));
    world.pass(10);
    assert_eq!(hold(1).await, 3);
    world.pass(5);
    assert_eq!(hold(1).await, 1, "two of them ended");
    assert_eq!(hold(2).await, 2);
    world.store.release(HolderId::from_number(1)).await.unwrap();
    assert_eq!(hold(2).await, 1);
}

pub(super) async fn a_gateway_that_is_restarted_again_and_again_counts_once(world: World) {
    let hold = async |id: HolderId| {
        let until = world.now().plus(LeaseRequest::TERM);
        world.store.hold(Holder::apart(id, until)).await.unwrap().gateways
    };
    let (here, there) = (Place::named("here:8402"), Place::named("there:8402"));
    let process = |place, number| HolderId::draw_in(place, &Drawn(number));
    let other = HolderId::from_number(7);
    assert_eq!(hold(other).await, 1);
    for number in [1, 3, 5] {
        assert_eq!(hold(process(here, number)).await, 2, "each replaces the one before");
    }
    assert_eq!(hold(process(there, 1)).await, 3);
    // It is counted once, and a process that was believed dead keeps its lease.
    let claim = world.open(world.turnstile("a")).await;
    let leases = world.lease(process(here, 1)).await;
    assert_eq!(leases.iter().map(|lease| Some(lease.solve.id)).collect::<Vec<_>>(), [claim.solve]);
    assert!(world.lease(process(here, 5)).await.is_empty());
    world.pass(16);
    assert_eq!(hold(other).await, 1);
}

#[derive(Debug)]
pub(super) struct Drawn(pub(super) u64);

impl Chance for Drawn {
    fn draw(&self) -> u64 {
        self.0
    }
}
