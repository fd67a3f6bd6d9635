//! Claims that lapse before anything is paid for them leave a dead letter of their own class, from which they are revived.

use domain::{
    claim::{Admission, Claim, ClaimState},
    dead_letter::{Closing, DeadLetterClass},
    ledger::Event,
    money::Money,
    pause::PauseScope,
    ports::{DeadLetterFilter, PauseRequest, Revival, Scope, SweepRequest},
    retry::{Verdict, own},
    solve::{Decision, Stage},
};

use crate::world::{World, admin, named, over, refused, token_of, worker};

const TROUBLE: &str = "ERROR_ZERO_BALANCE";

async fn sweep_in_trouble(world: &World) {
    let request = SweepRequest { trouble: Some(TROUBLE.into()), ..SweepRequest::plain(99) };
    world.store.sweep(request, world.now()).await.unwrap();
}

/// The class and the code of the claim's dead letter.
async fn class_and_code(world: &World, claim: &Claim) -> (DeadLetterClass, String) {
    let letter = world.dead_letter(claim).await;
    (letter.class, letter.code.to_string())
}

fn lapsed(code: &str) -> (DeadLetterClass, String) {
    (DeadLetterClass::Lapsed, code.to_owned())
}

pub(super) async fn an_empty_account_leaves_dead_letters_that_are_revived_and_served(world: World) {
    let mut claims = Vec::new();
    for n in 0..5 {
        let mut new = world.turnstile(&format!("k{n}"));
        new.key = named(&new, &format!("order-{n}"));
        let claim = world.open(new).await;
        // The account refuses it, and charges nothing.
        let lease = world.lease_of(&claim).await;
        world.intend(&lease).await.unwrap();
        let due = world.now();
        let again = Verdict::Again { due, counted: false };
        world.settle(lease.solve.id, 1, refused(TROUBLE, again)).await;
        claims.push(claim);
    }
    world.pass(120);
    sweep_in_trouble(&world).await;
    for claim in &claims {
        let now = world.find(claim).await;
        assert_eq!((now.state, now.cost), (ClaimState::Lapsed, Some(Money::ZERO)));
        assert_eq!(class_and_code(&world, claim).await, lapsed(TROUBLE));
        let letter = world.dead_letter(claim).await;
        assert_eq!((letter.claims, letter.cost), (vec![claim.id], Some(Money::ZERO)));
    }
    for (n, claim) in claims.iter().enumerate() {
        let back = world.reopen(claim).await;
        let lease = world.submit(&back, &format!("t{n}")).await;
        world.settle(lease.solve.id, 1, world.solved(&format!("t{n}"))).await;
        assert_eq!(token_of(&world.find(&back).await), Some(format!("token-t{n}").as_str()));
        assert_eq!(world.dead_letter(claim).await.closed.unwrap().how, Closing::Revived);
    }
    assert_eq!(world.count(|event| matches!(event, Event::Accepted { .. })).await, 5);
    let open = DeadLetterFilter::open(Scope::All, 9);
    assert!(world.records.dead_letters(open).await.unwrap().items.is_empty());
}

pub(super) async fn dead_letters_are_listed_and_purged_by_class(world: World) {
    let failed = world.fail(world.turnstile("a"), "ERROR_PAGEURL").await;
    let unsent = world.open(world.turnstile("b")).await;
    world.pass(120);
    world.sweep().await;
    assert_eq!(class_and_code(&world, &unsent).await, lapsed(own::DEADLINE));
    for (class, wanted) in [(DeadLetterClass::Failed, &failed), (DeadLetterClass::Lapsed, &unsent)]
    {
        let filter =
            DeadLetterFilter { class: Some(class), ..DeadLetterFilter::open(Scope::All, 9) };
        let found = world.records.dead_letters(filter).await.unwrap().items;
        let ids: Vec<_> = found.iter().map(|letter| letter.id).collect();
        assert_eq!(ids, [wanted.solve.unwrap()], "{class:?}");
    }
    assert!(world.store.purge(unsent.solve.unwrap(), admin(), world.now()).await.unwrap());
    assert!(matches!(world.bring_back(&unsent).await, Revival::Unknown));
}

pub(super) async fn a_pause_is_the_reason_of_what_lapses_under_it(world: World) {
    let swept = world.open(world.turnstile("a")).await;
    let dropped = world.open(world.turnstile("b")).await;
    let lease = world.lease_of(&dropped).await;
    let scope = PauseScope::Everything;
    let pause = PauseRequest { scope, paused: true, by: admin() };
    world.store.set_pause(pause, world.now()).await.unwrap();
    let soonest = dropped.deadline.plus(std::time::Duration::from_secs(1));
    world.decide(&lease, Decision::Lapse { soonest, trouble: None }).await.unwrap();
    world.pass(120);
    sweep_in_trouble(&world).await;
    for claim in [&swept, &dropped] {
        assert_eq!(class_and_code(&world, claim).await, lapsed(own::PAUSED));
        assert_eq!(world.find(claim).await.code.unwrap().as_str(), own::PAUSED);
    }
}

pub(super) async fn what_may_have_been_paid_for_is_no_lapsed_dead_letter(world: World) {
    let over_once = world.open(world.turnstile("a")).await;
    let lease = world.submit(&over_once, "t1").await;
    let again = Verdict::Again { due: world.now(), counted: true };
    world.settle(lease.solve.id, 1, over("ERROR_CAPTCHA_UNSOLVABLE", again)).await;
    let authorised = world.open(world.turnstile("b")).await;
    world.lose_reply(&authorised).await;
    let lease = world.lease_of(&authorised).await;
    world.authorise(&lease).await.unwrap();
    let sent = world.open(world.turnstile("c")).await;
    world.submit(&sent, "t3").await;
    world.pass(120);
    sweep_in_trouble(&world).await;
    for (claim, code) in [(&over_once, TROUBLE), (&authorised, TROUBLE), (&sent, own::DEADLINE)] {
        assert_eq!(world.find(claim).await.state, ClaimState::Lapsed);
        assert_eq!(
            class_and_code(&world, claim).await,
            (DeadLetterClass::Failed, code.to_owned()),
            "somebody has to look at the money"
        );
    }
}

pub(super) async fn every_claim_that_leaves_a_shared_solve_unpaid_is_in_its_dead_letter(
    world: World,
) {
    let first = world.open(world.image(b"picture")).await;
    let mut patient = world.image(b"picture");
    (patient.worker, patient.deadline) = (worker("bob"), patient.deadline.plus(LONGER));
    let Admission::Joined(second) = world.admit(patient).await else { panic!("not joined") };
    world.pass(120);
    sweep_in_trouble(&world).await;
    assert_eq!(class_and_code(&world, &first).await, lapsed(TROUBLE));
    assert_eq!(world.records.active(Scope::All, 9).await.unwrap()[0].claims, [second.id]);
    world.pass(LONGER.as_secs());
    world.sweep().await;
    let letter = world.dead_letter(&first).await;
    assert_eq!(letter.claims, [first.id, second.id]);
    assert_eq!((letter.class, letter.code.as_str()), (DeadLetterClass::Lapsed, own::DEADLINE));
    assert_eq!(world.count(|event| matches!(event, Event::DeadLettered { .. })).await, 1);
    world.reopen(&first).await;
    let active = world.records.active(Scope::All, 9).await.unwrap();
    assert_eq!((active.len(), active[0].claims.len()), (1, 2), "both are back, for one price");
}

const LONGER: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) async fn a_shared_answer_that_comes_after_all_closes_the_dead_letter(world: World) {
    let first = world.open(world.image(b"picture")).await;
    let mut patient = world.image(b"picture");
    patient.deadline = patient.deadline.plus(LONGER);
    let Admission::Joined(second) = world.admit(patient).await else { panic!("not joined") };
    world.pass(120);
    sweep_in_trouble(&world).await;
    let lease = world.submit(&second, "t1").await;
    world.settle(lease.solve.id, 1, world.solved("t1")).await;
    assert_eq!(world.find(&second).await.state, ClaimState::Served);
    assert_eq!(world.dead_letter(&first).await.closed.unwrap().how, Closing::LateAnswer);
    assert!(matches!(world.admit(world.image(b"picture")).await, Admission::Stocked(_)));
}

pub(super) async fn a_shared_solve_that_fails_later_makes_its_dead_letter_a_failure(world: World) {
    let first = world.open(world.image(b"picture")).await;
    let mut patient = world.image(b"picture");
    patient.deadline = patient.deadline.plus(LONGER);
    let Admission::Joined(second) = world.admit(patient).await else { panic!("not joined") };
    world.pass(120);
    sweep_in_trouble(&world).await;
    world.fail_solve(&second, "ERROR_PAGEURL").await;
    let letter = world.dead_letter(&first).await;
    assert_eq!((letter.class, letter.code.as_str()), (DeadLetterClass::Failed, "ERROR_PAGEURL"));
    assert_eq!(letter.claims, [first.id, second.id]);
}

pub(super) async fn a_revival_that_lapses_when_its_dead_letter_is_gone_gets_its_own(world: World) {
    let unsent = world.open(world.turnstile("a")).await;
    world.pass(120);
    sweep_in_trouble(&world).await;
    let back = world.reopen(&unsent).await;
    assert!(world.store.purge(unsent.solve.unwrap(), admin(), world.now()).await.unwrap());
    world.pass(120);
    sweep_in_trouble(&world).await;
    assert_eq!(class_and_code(&world, &back).await, lapsed(TROUBLE));
    let again = world.reopen(&back).await;
    let lease = world.lease_of(&again).await;
    assert_eq!((lease.solve.stage, lease.solve.attempt), (Stage::Queued, 0));
}
