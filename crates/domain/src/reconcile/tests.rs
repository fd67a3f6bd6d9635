use std::collections::BTreeMap;

use super::*;
use crate::{
    challenge::Kind,
    id::{Nonce, Project, SolveId, TaskId, WorkerName},
    lease::Fence,
    ledger::{Entry, Event},
    time::Day,
};

const PRICE: Money = Money::from_micros(1_450);
const DAY: Day = Day::from_number(20_776);

/// A ledger, and the balance of a provider that charges at the acceptance.
struct Books {
    collector: Collector,
    now: Timestamp,
    balance: i64,
    number: u32,
    prices: BTreeMap<SolveId, Money>,
}

impl Books {
    fn new() -> Self {
        let now = DAY.start().plus(std::time::Duration::from_secs(60));
        let prices = BTreeMap::new();
        Self { collector: Collector::new(DAY), now, balance: 1_000_000, number: 0, prices }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.plus(std::time::Duration::from_secs(seconds));
    }

    fn write(&mut self, solve: u64, event: Event) {
        let solve = Some(SolveId::from_number(solve)).filter(|_| solve != 0);
        self.collector.add(&Entry {
            seq: 0,
            at: self.now,
            claim: None,
            solve,
            worker: WorkerName::new("ann").unwrap(),
            project: Project::new("shop").unwrap(),
            kind: Some(Kind::Turnstile),
            event,
        });
    }

    fn begin_reading(&mut self) -> u32 {
        self.number += 1;
        self.write(0, Event::BalanceAsked { number: self.number });
        self.number
    }

    fn read(&mut self) {
        let number = self.begin_reading();
        let amount = Money::from_micros(self.balance);
        self.write(0, Event::BalanceRead { number, amount });
        self.pass(900);
    }

    fn charge(&mut self, amount: Money) {
        self.balance -= amount.micros();
    }

    fn intend(&mut self, solve: u64, attempt: u32) {
        let (nonce, fence) = (Nonce::from_number(solve), Fence::default());
        self.write(solve, Event::Intent { attempt, nonce, fence });
    }

    fn accept(&mut self, solve: u64) {
        self.intend(solve, 1);
        self.charge(PRICE);
        self.write(solve, Event::Accepted { attempt: 1, task: task() });
    }

    fn end(&mut self, solve: u64, cost: Option<Money>) {
        self.write(solve, Event::Ready { attempt: 1, task: task(), cost });
    }

    /// A solve from its beginning to its end.
    fn solve(&mut self, solve: u64) {
        self.accept(solve);
        self.end(solve, Some(PRICE));
    }

    /// A submission whose reply is lost, and which is followed by another.
    fn lose(&mut self, solve: u64, is_charged: bool) {
        self.intend(solve, 1);
        if is_charged {
            self.charge(PRICE);
        }
        self.write(solve, Event::Ambiguous { attempt: 1, why: "drop".into() });
        self.write(solve, Event::Authorised { attempt: 1, fence: Fence::default() });
        self.prices.insert(SolveId::from_number(solve), PRICE);
    }

    fn judge(self) -> Reconciliation {
        self.judge_with(None)
    }

    fn judge_with(self, top_up: Option<Money>) -> Reconciliation {
        self.collector.finish().judge(&self.prices, top_up)
    }
}

fn task() -> TaskId {
    TaskId::new("71200").unwrap()
}

fn micros(amount: Money) -> i64 {
    amount.micros()
}

#[test]
fn books_without_a_doubt_add_up_to_the_cent() {
    let mut books = Books::new();
    books.read();
    (1..=3).for_each(|solve| books.solve(solve));
    books.read();
    books.solve(4);
    books.read();
    let found = books.judge();
    assert_eq!((found.verdict, found.readings, found.items.len()), (BooksVerdict::AddsUp, 3, 0));
    let segment = &found.segments[0];
    assert_eq!(
        (segment.attempts, segment.settled, segment.charged),
        (4, segment.charged, Money::from_micros(5_800))
    );
}

#[test]
fn a_charge_behind_the_gateways_back_is_named() {
    let mut books = Books::new();
    books.read();
    books.solve(1);
    books.lose(2, false);
    books.charge(Money::from_micros(1_200));
    books.read();
    let found = books.judge();
    assert_eq!(found.verdict, BooksVerdict::DoesNotAddUp);
    assert_eq!(micros(found.segments[0].unexplained), 1_200, "the lost reply does not explain it");
}

#[test]
fn what_was_uncertain_before_a_quiet_reading_explains_nothing_after_it() {
    let mut books = Books::new();
    books.read();
    books.lose(2, false);
    books.pass(3_600);
    books.solve(3);
    books.read();
    books.solve(4);
    books.charge(PRICE);
    books.read();
    books.solve(5);
    books.read();
    let found = books.judge();
    let parts: Vec<_> = found.segments.iter().map(|s| (s.verdict, micros(s.unexplained))).collect();
    let adds_up = (BooksVerdict::AddsUp, 0);
    assert_eq!(parts, [adds_up, (BooksVerdict::DoesNotAddUp, 1_450), adds_up]);
    assert_eq!(found.verdict, BooksVerdict::DoesNotAddUp);
}

#[test]
fn money_that_the_provider_did_not_charge_is_named() {
    let mut books = Books::new();
    books.read();
    books.solve(1);
    books.charge(Money::from_micros(-50));
    books.read();
    let found = books.judge();
    assert_eq!(
        (found.verdict, micros(found.segments[0].unexplained)),
        (BooksVerdict::DoesNotAddUp, -50)
    );
}

#[test]
fn a_lost_reply_may_have_been_charged_or_not_and_is_listed() {
    for is_charged in [false, true] {
        let mut books = Books::new();
        books.read();
        books.lose(7, is_charged);
        books.solve(8);
        books.pass(3_600);
        books.read();
        let found = books.judge();
        assert_eq!(found.verdict, BooksVerdict::AddsUp, "{is_charged}");
        let listed: Vec<_> = found.items.iter().map(|item| (item.solve, item.doubt)).collect();
        assert_eq!(listed, [(SolveId::from_number(7), Doubt::Authorised)]);
        assert_eq!(found.items[0].prices, [PRICE]);
        assert_eq!(micros(found.segments[0].settled), 1_450, "it is no part of the ledger's sum");
    }
}

#[test]
fn a_late_charge_of_a_lost_reply_is_explained_in_the_next_period_too() {
    let mut books = Books::new();
    books.lose(7, false);
    books.read();
    books.charge(PRICE);
    books.read();
    assert_eq!(books.judge().verdict, BooksVerdict::AddsUp);
    let mut books = Books::new();
    books.lose(7, false);
    books.pass(3_600);
    books.read();
    books.charge(PRICE);
    books.read();
    assert_eq!(
        books.judge().verdict,
        BooksVerdict::DoesNotAddUp,
        "an hour later it is somebody else's"
    );
}

#[test]
fn an_attempt_in_flight_at_a_reading_may_be_on_either_side_of_it() {
    for charged_before in [true, false] {
        let mut books = Books::new();
        books.read();
        books.intend(1, 1);
        if charged_before {
            books.charge(PRICE);
        }
        books.read();
        if !charged_before {
            books.charge(PRICE);
        }
        books.end(1, Some(PRICE));
        books.solve(2);
        books.read();
        let found = books.judge();
        assert_eq!(
            (found.verdict, found.segments[0].in_flight),
            (BooksVerdict::AddsUp, 0),
            "inside"
        );
    }
    for charged_before in [true, false] {
        let mut books = Books::new();
        books.intend(1, 1);
        if charged_before {
            books.charge(PRICE);
        }
        books.read();
        if !charged_before {
            books.charge(PRICE);
        }
        books.end(1, Some(PRICE));
        books.solve(2);
        books.accept(3);
        books.prices.insert(SolveId::from_number(3), PRICE);
        books.read();
        let found = books.judge();
        assert_eq!((found.verdict, found.segments[0].in_flight), (BooksVerdict::AddsUp, 2));
    }
}

#[test]
fn what_happens_while_the_balance_is_asked_for_is_in_flight() {
    let mut books = Books::new();
    let number = books.begin_reading();
    books.solve(1);
    let amount = Money::from_micros(books.balance + PRICE.micros());
    books.write(0, Event::BalanceRead { number, amount });
    books.pass(900);
    books.solve(2);
    books.read();
    let found = books.judge();
    assert_eq!((found.verdict, found.segments[0].in_flight), (BooksVerdict::AddsUp, 1));
}

#[test]
fn a_refund_is_no_top_up() {
    let mut books = Books::new();
    books.solve(9);
    books.accept(1);
    books.read();
    books.charge(Money::from_micros(-PRICE.micros()));
    let cost = Some(Money::ZERO);
    books.write(1, Event::TaskOver { attempt: 1, code: "ERROR_CAPTCHA_UNSOLVABLE".into(), cost });
    books.read();
    let found = books.judge();
    assert_eq!((found.verdict, found.top_ups.len()), (BooksVerdict::AddsUp, 0));
}

#[test]
fn a_top_up_hides_no_loss_at_another_time() {
    let mut books = Books::new();
    books.read();
    books.solve(1);
    books.read();
    books.charge(Money::from_micros(-5_000_000));
    books.solve(2);
    books.read();
    books.charge(Money::from_micros(333));
    books.read();
    let found = books.judge();
    assert_eq!(found.top_ups.len(), 1);
    assert_eq!(micros(found.top_ups[0].at_least), 5_000_000 - 1_450);
    assert_eq!(micros(found.top_ups[0].by_the_ledger), 5_000_000);
    let verdicts: Vec<_> =
        found.segments.iter().map(|s| (s.verdict, micros(s.unexplained))).collect();
    assert_eq!(verdicts, [(BooksVerdict::AddsUp, 0), (BooksVerdict::DoesNotAddUp, 333)]);
    assert_eq!(found.verdict, BooksVerdict::DoesNotAddUp);
}

#[test]
fn with_the_amount_of_the_top_up_the_whole_day_is_judged() {
    let books = || {
        let mut books = Books::new();
        books.read();
        books.charge(Money::from_micros(-5_000_000));
        books.charge(Money::from_micros(77));
        books.solve(2);
        books.read();
        books
    };
    assert_eq!(
        books().judge().verdict,
        BooksVerdict::CannotBeJudged,
        "a loss would look like less paid in"
    );
    let found = books().judge_with(Some(Money::from_micros(5_000_000)));
    assert_eq!(
        (found.verdict, micros(found.segments[0].unexplained)),
        (BooksVerdict::DoesNotAddUp, 77)
    );
}

#[test]
fn without_two_readings_nothing_adds_up() {
    let mut books = Books::new();
    books.solve(1);
    assert_eq!(books.judge().verdict, BooksVerdict::CannotBeJudged);
    let mut books = Books::new();
    books.solve(1);
    books.read();
    books.solve(2);
    books.begin_reading();
    let found = books.judge();
    assert_eq!(
        (found.verdict, found.not_covered),
        (BooksVerdict::CannotBeJudged, (2, Money::from_micros(2_900)))
    );
}

#[test]
fn an_attempt_without_a_price_is_not_taken_for_free() {
    let mut books = Books::new();
    books.read();
    books.accept(1);
    books.end(1, None);
    books.read();
    let found = books.judge();
    assert_eq!((found.verdict, found.segments[0].unpriced), (BooksVerdict::CannotBeJudged, 1));
    assert_eq!((found.items[0].doubt, found.items[0].prices.len()), (Doubt::UnknownCost, 0));
}

#[test]
fn a_task_that_turns_up_late_is_no_doubt() {
    let mut books = Books::new();
    books.read();
    books.lose(5, true);
    books.pass(1_800);
    let by = SolveId::from_number(6);
    books.write(5, Event::Orphaned { attempt: 1, task: task(), by });
    books.end(6, Some(PRICE));
    books.read();
    let found = books.judge();
    assert_eq!((found.verdict, found.items.len()), (BooksVerdict::AddsUp, 0));
    assert_eq!(found.segments[0].settled, PRICE);
}

#[test]
fn a_reading_that_was_never_answered_leaves_no_mark() {
    let mut books = Books::new();
    books.read();
    books.begin_reading();
    books.pass(600);
    books.solve(1);
    books.read();
    let found = books.judge();
    assert_eq!((found.verdict, found.readings), (BooksVerdict::AddsUp, 2));
}
