//! I13 and I30 in the ledger: a claim's states hold within its generation, and a key opens it again once per failure, unless it
//! may have been paid.

use domain::{
    challenge::Kind,
    claim::{ClaimState, Source},
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    invariant::Checker,
    lease::Fence,
    ledger::{Entry, Event},
    time::Timestamp,
};

const CLAIM: ClaimId = ClaimId::from_number(123_456_789_012_345);
const SOLVE: SolveId = SolveId::from_number(1);

fn ended(state: ClaimState) -> Vec<Event> {
    vec![Event::Ended { state, code: None }]
}

fn failed() -> Vec<Event> {
    ended(ClaimState::Failed)
}

fn again(generation: u32) -> Vec<Event> {
    vec![Event::Reopened { generation }]
}

fn served() -> Vec<Event> {
    let task = TaskId::new("T1").expect("a good id");
    let usable_until = Timestamp::from_millis(u64::MAX);
    vec![Event::Allotted { paid_by: SOLVE, task, source: Source::Upstream, usable_until }]
}

/// The invariants that a ledger of these events breaks. Ends, generations and tokens are the claim's, the rest its solve's.
fn broken(events: &[Event]) -> Vec<u8> {
    let entry = |(seq, event): (u64, &Event)| {
        let is_of_claim =
            matches!(event, Event::Ended { .. } | Event::Reopened { .. } | Event::Allotted { .. });
        Entry {
            seq,
            at: Timestamp::default(),
            claim: is_of_claim.then_some(CLAIM),
            solve: Some(SOLVE),
            worker: WorkerName::new("shop").expect("a good name"),
            project: Project::new("shop").expect("a good name"),
            kind: Some(Kind::Turnstile),
            event: event.clone(),
        }
    };
    let entries: Vec<Entry> = (1..).zip(events).map(entry).collect();
    Checker::check(&entries).into_iter().map(|violation| violation.invariant).collect()
}

#[test]
fn a_generation_has_states_of_its_own_and_follows_one_failure() {
    let right = [
        [failed(), again(2), served()].concat(),
        [failed(), again(2), failed(), again(3), served()].concat(),
        [ended(ClaimState::Lapsed), again(2), ended(ClaimState::Withdrawn)].concat(),
    ];
    for events in right {
        assert_eq!(broken(&events), Vec::<u8>::new(), "{events:?}");
    }
    let wrong = [
        (again(2), 30),
        ([failed(), again(1)].concat(), 30),
        ([failed(), again(3)].concat(), 30),
        ([failed(), again(2), again(3)].concat(), 30),
        ([failed(), again(2), failed(), again(2)].concat(), 30),
        ([served(), again(2)].concat(), 30),
        ([ended(ClaimState::Withdrawn), again(2)].concat(), 30),
        ([failed(), again(2), served(), failed()].concat(), 13),
        ([failed(), served()].concat(), 13),
    ];
    for (events, invariant) in wrong {
        assert_eq!(broken(&events), [invariant], "{events:?}");
    }
}

#[test]
fn what_may_have_been_paid_is_not_opened_again() {
    let intent = |attempt| {
        let (nonce, fence) = (Nonce::from_number(u64::from(attempt)), Fence(1));
        Event::Intent { attempt, nonce, fence }
    };
    let lost = |attempt| Event::Ambiguous { attempt, why: "reset".into() };
    let refused = |attempt| Event::NotAccepted { attempt, code: "ERROR_PAGEURL".into() };
    let gave_up = || Event::Failed { code: "POISON".into() };
    let authorised = Event::Authorised { attempt: 1, fence: Fence(1) };
    let holder = HolderId::from_number(1);
    let recovered = Event::Recovered { from: holder, by: holder, fence: Fence(2) };
    let unpaid = [vec![intent(1), refused(1), gave_up()], failed(), again(2)].concat();
    assert_eq!(broken(&unpaid), Vec::<u8>::new(), "it was refused for certain");
    let maybe_paid = [
        vec![intent(1)],
        vec![intent(1), lost(1)],
        vec![intent(1), lost(1), Event::WrittenOff { attempt: 1 }, gave_up()],
        vec![intent(1), recovered, lost(1), gave_up()],
        vec![intent(1), lost(1), authorised, intent(2), refused(2), gave_up()],
    ];
    for events in maybe_paid {
        let events = [events, failed(), again(2)].concat();
        assert_eq!(broken(&events), [30], "{events:?}");
    }
}
