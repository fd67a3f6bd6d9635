use std::time::Duration;

use super::*;
use crate::{
    challenge::Kind,
    claim::Source,
    fingerprint::KeyHash,
    id::{ClaimId, Project, SolveId, TaskId, WorkerName},
    ledger::{Entry, Event},
    money::Money,
    time::Timestamp,
};

const WINDOW: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const PRICE: Money = Money::from_micros(1_000);

/// Writes a ledger into several replays at once.
struct Ledger {
    replays: Vec<Replay>,
    now: Timestamp,
}

impl Ledger {
    fn new(settings: &[Settings]) -> Self {
        let replays = settings.iter().map(|one| Replay::new(*one, WINDOW)).collect();
        Self { replays, now: Timestamp::from_millis(1_763_337_600_000) }
    }

    fn pass(&mut self, length: Duration) {
        self.now = self.now.plus(length);
    }

    fn write(&mut self, claim: u64, solve: u64, event: Event, facts: Option<ClaimFacts>) {
        let entry = Entry {
            seq: 0,
            at: self.now,
            claim: Some(ClaimId::from_number(claim)).filter(|_| claim > 0),
            solve: Some(SolveId::from_number(solve)).filter(|_| solve > 0),
            worker: WorkerName::new("ann").unwrap(),
            project: Project::new("shop").unwrap(),
            kind: Some(Kind::Turnstile),
            event,
        };
        for replay in &mut self.replays {
            let needed = replay.needs(&entry).is_some();
            replay.add(&entry, facts.as_ref().filter(|_| needed));
        }
    }

    /// A claim that opens a solve, which takes two seconds and a half.
    fn serve(&mut self, number: u64, key: KeyUse) {
        let facts = ClaimFacts { key, ended_at: None, repeats: 0 };
        self.write(number, number, Event::Opened { basis: "own".into() }, Some(facts));
        self.work(number);
        self.allot(number, number, Source::Upstream);
    }

    fn work(&mut self, solve: u64) {
        self.write(0, solve, Event::Accepted { attempt: 1, task: task(solve) }, None);
        self.pass(Duration::from_millis(2_500));
        let ready = Event::Ready { attempt: 1, task: task(solve), cost: Some(PRICE) };
        self.write(0, solve, ready, None);
    }

    fn allot(&mut self, claim: u64, solve: u64, source: Source) {
        let usable_until = self.now.plus(Duration::from_secs(250));
        let (paid_by, task) = (SolveId::from_number(solve), task(solve));
        self.write(claim, 0, Event::Allotted { paid_by, task, source, usable_until }, None);
    }

    fn repeat(&mut self, claim: u64, key: KeyUse, ended_at: Option<Timestamp>, repeats: u64) {
        self.write(claim, claim, Event::Replayed, Some(ClaimFacts { key, ended_at, repeats }));
    }

    fn finish(self) -> Vec<WhatIf> {
        self.replays.into_iter().map(Replay::finish).collect()
    }
}

fn task(number: u64) -> TaskId {
    TaskId::new(format!("task-{number}")).unwrap()
}

fn derived(number: u8) -> KeyUse {
    KeyUse::Derived(KeyHash::from_bytes([number; 32]))
}

fn cost(solves: i64) -> Money {
    Money::from_micros(PRICE.micros() * solves)
}

#[test]
fn with_unchanged_settings_the_estimate_is_what_happened() {
    let mut ledger = Ledger::new(&[Settings::default()]);
    ledger.serve(1, KeyUse::Named);
    ledger.repeat(1, KeyUse::Named, Some(ledger.now), 5);
    ledger.write(0, 2, Event::Ordered { basis: "own".into(), target: 1 }, None);
    ledger.work(2);
    let usable_until = ledger.now.plus(WINDOW);
    ledger.write(0, 2, Event::Banked { task: task(2), usable_until }, None);
    ledger.allot(3, 2, Source::Stock);
    let [found] = ledger.finish().try_into().unwrap();
    assert_eq!(found.actual, found.estimate);
    assert_eq!((found.added, found.saved), (0, 0));
    let Outcome { claims, repeats, solves, attempts, served, wait_ms, .. } = found.actual;
    assert_eq!((claims, repeats, solves, attempts, served, wait_ms), (2, 5, 2, 2, 2, 2_500));
    assert_eq!((found.actual.cost, found.actual.slot_ms), (cost(2), 5_000));
}

#[test]
fn without_keys_every_repeat_is_paid() {
    let no_keys = Settings { no_keys: true, ..Settings::default() };
    let no_reuse = Settings { no_reuse: true, ..Settings::default() };
    let mut ledger = Ledger::new(&[no_keys, no_reuse]);
    ledger.serve(1, KeyUse::Named);
    ledger.repeat(1, KeyUse::Named, Some(ledger.now), 4);
    ledger.serve(2, derived(2));
    ledger.repeat(2, derived(2), Some(ledger.now), 2);
    let [keys, reuse] = ledger.finish().try_into().unwrap();
    assert_eq!((keys.added, keys.estimate.cost), (4, cost(6)));
    assert_eq!((reuse.added, reuse.estimate.cost), (2, cost(4)));
    assert_eq!(keys.actual.cost, cost(2));
}

#[test]
fn a_narrower_window_adds_the_late_repeats() {
    let none = Settings { reuse_window: Some(Duration::ZERO), ..Settings::default() };
    let half = Settings { reuse_window: Some(WINDOW / 2), ..Settings::default() };
    let mut ledger = Ledger::new(&[none, half]);
    ledger.serve(1, derived(1));
    let ended = ledger.now;
    ledger.pass(10 * SECOND);
    ledger.repeat(1, derived(1), Some(ended), 1);
    ledger.serve(2, derived(2));
    let ended = ledger.now;
    ledger.pass(40 * SECOND);
    ledger.repeat(2, derived(2), Some(ended), 1);
    ledger.serve(3, derived(3));
    // In flight: no window is too narrow for it.
    ledger.repeat(3, derived(3), None, 1);
    let added: Vec<_> = ledger.finish().iter().map(|found| found.added).collect();
    assert_eq!(added, [2, 1]);
}

#[test]
fn a_wider_window_saves_solves_while_the_token_lives() {
    let wide = Settings { reuse_window: Some(600 * SECOND), ..Settings::default() };
    let mut ledger = Ledger::new(&[wide]);
    ledger.serve(1, derived(1));
    ledger.pass(100 * SECOND);
    ledger.serve(2, derived(1));
    ledger.serve(3, derived(3));
    // 250 seconds after the first answer its token is dead; the second was saved and has none.
    ledger.pass(160 * SECOND);
    ledger.serve(4, derived(1));
    let [found] = ledger.finish().try_into().unwrap();
    assert_eq!((found.saved, found.actual.cost, found.estimate.cost), (1, cost(4), cost(3)));
    assert_eq!(found.estimate.wait_ms, found.actual.wait_ms - 2_500);
    assert_eq!(found.estimate.slot_ms, 3 * 2_500);
}

#[test]
fn without_pools_claims_wait_and_nothing_is_wasted() {
    let mut ledger = Ledger::new(&[Settings { no_pools: true, ..Settings::default() }]);
    ledger.serve(9, KeyUse::Own);
    for solve in [1, 2, 3] {
        ledger.write(0, solve, Event::Ordered { basis: "own".into(), target: 3 }, None);
        ledger.work(solve);
        let usable_until = ledger.now.plus(WINDOW);
        ledger.write(0, solve, Event::Banked { task: task(solve), usable_until }, None);
    }
    ledger.allot(5, 1, Source::Stock);
    ledger.pass(WINDOW);
    ledger.write(0, 2, Event::Wasted { task: task(2) }, None);
    let [found] = ledger.finish().try_into().unwrap();
    assert_eq!((found.added, found.saved), (1, 3));
    assert_eq!((found.actual.cost, found.estimate.cost), (cost(4), cost(2)));
    assert_eq!((found.actual.wasted, found.estimate.wasted), (1, 0));
    assert_eq!((found.actual.wait_ms, found.estimate.wait_ms), (2_500, 5_000));
}

#[test]
fn slower_polling_sees_answers_later() {
    let slow = Settings { poll_every: Some(2 * SECOND), ..Settings::default() };
    let mut ledger = Ledger::new(&[slow]);
    ledger.serve(1, KeyUse::Own);
    ledger.serve(2, KeyUse::Own);
    let [found] = ledger.finish().try_into().unwrap();
    assert_eq!(
        (found.actual.mean_wait_ms(), found.estimate.mean_wait_ms()),
        (Some(2_500), Some(4_000))
    );
    assert_eq!(
        (found.actual.slot_ms, found.estimate.slot_ms, found.estimate.polls),
        (5_000, 8_000, 4)
    );
    assert_eq!(found.actual.cost, found.estimate.cost);
}

#[test]
fn a_solve_of_which_nothing_is_known_has_no_cost_and_not_zero() {
    let mut ledger = Ledger::new(&[Settings { no_keys: true, ..Settings::default() }]);
    ledger.repeat(1, KeyUse::Named, Some(ledger.now), 3);
    let [found] = ledger.finish().try_into().unwrap();
    assert_eq!((found.added, found.unfounded, found.estimate.cost_unknown), (3, 3, 3));
}
