//! Budgets: how much a worker, a pool or the whole account may spend in a day and in a month, and the books that say how much
//! of it is used. Money is reserved before it can be spent, and settled with what the provider charged.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    fingerprint::Fingerprint,
    id::WorkerName,
    money::Money,
    pool::PoolId,
    time::{Day, Timestamp},
};

/// The limits of one budget, per UTC day and UTC month. The store counts what is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The most solves in a day. Every attempt that the provider accepted or may have accepted is one.
    pub solves_per_day: Option<u64>,
    /// The most money in a day.
    pub cost_per_day: Option<Money>,
    /// The most solves in a month.
    pub solves_per_month: Option<u64>,
    /// The most money in a month.
    pub cost_per_month: Option<Money>,
}

/// All budgets in force. A reload replaces the whole value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// The account's: everything that is bought.
    pub account: Allowance,
    /// The workers'; others are unlimited.
    pub workers: BTreeMap<WorkerName, Allowance>,
    /// The pools', by fingerprint; others are unlimited.
    pub pools: BTreeMap<Fingerprint, Allowance>,
}

/// Whose budget it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetScope {
    /// The account at the provider.
    Account,
    /// A worker.
    Worker(WorkerName),
    /// A pool: what its refills cost.
    Pool(PoolId),
}

/// A number of solves and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// The number of solves.
    pub solves: u64,
    /// Their cost. An unknown list price adds nothing; a budget of money needs a list price.
    pub cost: Money,
}

/// What was booked in a day or a month. Every field only rises, so that two copies can be merged. Amounts are at list price
/// unless they say otherwise. Reserved = settled + released + outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetUse {
    /// Reserved for attempts.
    pub reserved: Amount,
    /// Given back, because nothing was charged.
    pub released: Amount,
    /// Of attempts that ended, or that are given up as ambiguous.
    pub settled: Amount,
    /// What the provider charged for the settled ones; the list price where that is unknown.
    pub charged: Money,
    /// What of `charged` turned out not to be charged.
    pub corrected: Money,
    /// Settled attempts whose charge was unknown then.
    pub unknown: u64,
    /// Tokens that pools had paid for, and that served claims of this worker.
    pub stocked: Amount,
}

/// The books of one budget for a month: its sums, and those of its latest days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetBook {
    /// The sums of the month.
    pub month: BudgetUse,
    /// The sums of the latest days, oldest first.
    pub days: Vec<(Day, BudgetUse)>,
}

/// What a solve holds of the budgets. It is settled or released in the books of the day on which it was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Reservation {
    /// The day it was reserved for.
    pub day: Day,
    /// The list price of one attempt.
    pub price: Option<Money>,
}

/// The reservations of a solve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Reservations {
    /// That of the current attempt, or of the next one if nothing was charged so far.
    pub open: Option<Reservation>,
    /// Those of attempts that were settled at list price because their charge is unknown, by attempt. A late fact corrects
    /// them.
    pub assumed: Vec<(u32, Reservation)>,
}

/// A limit that is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// Whose.
    pub scope: BudgetScope,
    /// Its name in the configuration.
    pub limit: &'static str,
    /// When it starts again from zero.
    pub until: Timestamp,
}

/// One limit of a budget, and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// Its name in the configuration.
    pub limit: &'static str,
    /// What is used, in solves or in millionths of the currency.
    pub used: u64,
    /// The limit, in the same unit.
    pub most: u64,
    /// Whether it is about money.
    pub is_money: bool,
    /// When it starts again from zero.
    pub resets_at: Timestamp,
}

/// Days whose sums a book keeps. A reservation that is settled later than that is in the sums of the month only.
const DAYS_KEPT: usize = 3;

// === impl Allowance ===

impl Allowance {
    /// Whether it limits anything.
    pub fn is_limited(&self) -> bool {
        *self != Self::default()
    }

    /// Whether it limits money, so that it needs list prices.
    pub fn limits_cost(&self) -> bool {
        self.cost_per_day.is_some() || self.cost_per_month.is_some()
    }

    /// The limits that are set, and what the book says about them today.
    pub fn states(&self, book: &BudgetBook, today: Day) -> Vec<LimitState> {
        let (day, month) = (book.day(today).used(), book.month.used());
        let (midnight, next_month) = (today.end(), today.next_month().start());
        let solves = |limit, used: Amount, most: Option<u64>, resets_at| {
            most.map(|most| LimitState {
                limit,
                used: used.solves,
                most,
                is_money: false,
                resets_at,
            })
        };
        let cost = |limit, used: Amount, most: Option<Money>, resets_at| {
            let micros = |money: Money| u64::try_from(money.micros()).unwrap_or(0);
            most.map(|most| LimitState {
                limit,
                used: micros(used.cost),
                most: micros(most),
                is_money: true,
                resets_at,
            })
        };
        let states = [
            solves("solves_per_day", day, self.solves_per_day, midnight),
            cost("cost_per_day", day, self.cost_per_day, midnight),
            solves("solves_per_month", month, self.solves_per_month, next_month),
            cost("cost_per_month", month, self.cost_per_month, next_month),
        ];
        states.into_iter().flatten().collect()
    }

    /// The limit that one more solve of this price would exceed. An unknown price is not zero, so it fits no limit on money.
    pub fn exceeded(
        &self,
        book: &BudgetBook,
        today: Day,
        price: Option<Money>,
    ) -> Option<(&'static str, Timestamp)> {
        let more = |state: &LimitState| match (state.is_money, price) {
            (false, _) => Some(1),
            (true, Some(price)) => u64::try_from(price.micros()).ok(),
            (true, None) => None,
        };
        let fits = |state: &LimitState| {
            more(state).is_some_and(|more| state.used.saturating_add(more) <= state.most)
        };
        let state = self.states(book, today).into_iter().find(|state| !fits(state))?;
        Some((state.limit, state.resets_at))
    }
}

// === impl Budgets ===

impl Budgets {
    /// The budget of a worker.
    pub fn of_worker(&self, worker: &WorkerName) -> Allowance {
        self.workers.get(worker).copied().unwrap_or_default()
    }

    /// The budget of a pool.
    pub fn of_pool(&self, pool: &Fingerprint) -> Allowance {
        self.pools.get(pool).copied().unwrap_or_default()
    }
}

// === impl BudgetScope ===

impl fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account => f.write_str("the account"),
            Self::Worker(name) => write!(f, "worker {name}"),
            Self::Pool(id) => write!(f, "pool {id}"),
        }
    }
}

// === impl LimitReached ===

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, limit, until } = self;
        write!(f, "the budget `{limit}` of {scope} is used up until {until}")
    }
}

// === impl Amount ===

impl Amount {
    /// One solve at this price.
    pub fn one(price: Option<Money>) -> Self {
        Self { solves: 1, cost: price.unwrap_or_default() }
    }

    fn add(&mut self, other: Self) {
        self.solves = self.solves.saturating_add(other.solves);
        self.cost = self.cost + other.cost;
    }

    fn less(self, other: Self) -> Self {
        Self { solves: self.solves.saturating_sub(other.solves), cost: self.cost - other.cost }
    }

    fn raise(&mut self, other: Self) {
        self.solves = self.solves.max(other.solves);
        self.cost = self.cost.max(other.cost);
    }
}

// === impl BudgetUse ===

impl BudgetUse {
    /// Reserved for attempts that have not ended.
    pub fn outstanding(&self) -> Amount {
        self.reserved.less(self.settled).less(self.released)
    }

    /// What counts against the limits.
    pub fn used(&self) -> Amount {
        let Amount { solves, cost } = self.outstanding();
        Amount {
            solves: solves + self.settled.solves + self.stocked.solves,
            cost: cost + self.charged - self.corrected + self.stocked.cost,
        }
    }

    /// Reserves one attempt.
    pub fn reserve(&mut self, price: Option<Money>) {
        self.reserved.add(Amount::one(price));
    }

    /// Gives a reservation back.
    pub fn release(&mut self, price: Option<Money>) {
        self.released.add(Amount::one(price));
    }

    /// Settles a reservation. A charge that is unknown counts at list price.
    pub fn settle(&mut self, price: Option<Money>, charge: Option<Money>) {
        self.settled.add(Amount::one(price));
        self.charged = self.charged + charge.or(price).unwrap_or_default();
        self.unknown += u64::from(charge.is_none());
    }

    /// Corrects an unknown charge that was settled at list price.
    pub fn correct(&mut self, price: Option<Money>, charge: Money) {
        let assumed = price.unwrap_or_default();
        if charge > assumed {
            self.charged = self.charged + (charge - assumed);
        } else {
            self.corrected = self.corrected + (assumed - charge);
        }
    }

    /// Counts a token that a pool had paid for.
    pub fn take_stocked(&mut self, cost: Option<Money>) {
        self.stocked.add(Amount::one(cost));
    }

    /// Adds everything that was bought. Tokens of pools are left out, because the pools bought them.
    pub fn add_bought(&mut self, other: &Self) {
        self.reserved.add(other.reserved);
        self.released.add(other.released);
        self.settled.add(other.settled);
        self.charged = self.charged + other.charged;
        self.corrected = self.corrected + other.corrected;
        self.unknown += other.unknown;
    }

    fn add(&mut self, other: &Self) {
        self.add_bought(other);
        self.stocked.add(other.stocked);
    }

    fn raise(&mut self, other: &Self) {
        self.reserved.raise(other.reserved);
        self.released.raise(other.released);
        self.settled.raise(other.settled);
        self.charged = self.charged.max(other.charged);
        self.corrected = self.corrected.max(other.corrected);
        self.unknown = self.unknown.max(other.unknown);
        self.stocked.raise(other.stocked);
    }
}

// === impl BudgetBook ===

impl BudgetBook {
    /// What was booked on a day; nothing, if it is not one of the latest.
    pub fn day(&self, day: Day) -> BudgetUse {
        self.days.iter().find(|(known, _)| *known == day).map(|(_, sums)| *sums).unwrap_or_default()
    }

    /// Books a change, in the sums of the month and in those of the day.
    pub fn book(&mut self, day: Day, change: impl Fn(&mut BudgetUse)) {
        change(&mut self.month);
        self.change_day(day, change);
    }

    fn change_day(&mut self, day: Day, change: impl Fn(&mut BudgetUse)) {
        if let Some((_, sums)) = self.days.iter_mut().find(|(known, _)| *known == day) {
            change(sums);
            return;
        }
        let mut sums = BudgetUse::default();
        change(&mut sums);
        self.days.push((day, sums));
        self.days.sort_unstable_by_key(|(day, _)| *day);
        let surplus = self.days.len().saturating_sub(DAYS_KEPT);
        self.days.drain(..surplus);
    }

    /// Adds everything that another book of the same month says was bought.
    pub fn add_bought(&mut self, other: &Self) {
        self.month.add_bought(&other.month);
        for (day, sums) in &other.days {
            self.change_day(*day, |known| known.add_bought(sums));
        }
    }

    /// Adds another part of the same book. A part alone says little: what one part reserved, another may have settled.
    pub fn add(&mut self, part: &Self) {
        self.month.add(&part.month);
        for (day, sums) in &part.days {
            self.change_day(*day, |known| known.add(sums));
        }
    }

    /// Takes the larger of each sum, so that neither copy's bookings are lost.
    pub fn raise(&mut self, other: &Self) {
        self.month.raise(&other.month);
        for (day, sums) in &other.days {
            self.change_day(*day, |known| known.raise(sums));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Day = Day::from_number(20_000);
    const PRICE: Option<Money> = Some(Money::from_micros(1000));

    fn cost(book: &BudgetBook) -> i64 {
        book.month.used().cost.micros()
    }

    #[test]
    fn what_is_reserved_counts_until_it_is_settled_or_released() {
        let mut book = BudgetBook::default();
        for _ in 0..3 {
            book.book(DAY, |sums| sums.reserve(PRICE));
        }
        assert_eq!(cost(&book), 3000);
        book.book(DAY, |sums| sums.release(PRICE));
        assert_eq!((cost(&book), book.month.used().solves), (2000, 2));
        book.book(DAY, |sums| sums.settle(PRICE, Some(Money::from_micros(1500))));
        assert_eq!((cost(&book), book.month.outstanding().solves), (2500, 1));
        book.book(DAY, |sums| sums.settle(PRICE, Some(Money::ZERO)));
        assert_eq!((cost(&book), book.month.used().solves), (1500, 2));
        assert_eq!(book.month.outstanding(), Amount::default());
        assert_eq!(book.day(DAY), book.month);
    }

    #[test]
    fn an_unknown_charge_counts_at_list_price_until_it_is_known() {
        for (charge, used) in [(0, 0), (400, 400), (1000, 1000), (1700, 1700)] {
            let mut sums = BudgetUse::default();
            sums.reserve(PRICE);
            sums.settle(PRICE, None);
            assert_eq!((sums.used().cost.micros(), sums.unknown), (1000, 1));
            sums.correct(PRICE, Money::from_micros(charge));
            assert_eq!(sums.used().cost.micros(), used);
        }
    }

    #[test]
    fn a_month_outlives_the_days_that_a_book_keeps() {
        let mut book = BudgetBook::default();
        for number in 0..10 {
            book.book(Day::from_number(20_000 + number), |sums| sums.reserve(PRICE));
        }
        // Late: only the month knows that day.
        book.book(DAY, |sums| sums.settle(PRICE, PRICE));
        assert_eq!(book.days.len(), DAYS_KEPT);
        assert_eq!(book.day(Day::from_number(20_009)).used().solves, 1);
        assert_eq!((book.month.used().solves, book.month.settled.solves), (10, 1));
    }

    #[test]
    fn the_parts_of_a_book_add_up_to_the_book_that_had_all_bookings() {
        let mut whole = BudgetBook::default();
        let mut parts: [BudgetBook; 3] = <_>::default();
        // Days that one part still keeps and another never saw, and a late settlement.
        for (number, day) in [0, 1, 2, 0, 7, 8, 9, 9, 0].into_iter().enumerate() {
            let day = Day::from_number(20_000 + day);
            let change = |sums: &mut BudgetUse| match number % 4 {
                0 | 1 => sums.reserve(PRICE),
                2 => sums.settle(PRICE, None),
                _ => sums.take_stocked(PRICE),
            };
            whole.book(day, change);
            parts[number % 3].book(day, change);
        }
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut sum = BudgetBook::default();
            for part in order {
                sum.add(&parts[part]);
            }
            assert_eq!(sum, whole);
        }
    }

    #[test]
    fn the_first_limit_that_is_reached_says_when_it_ends() {
        let today: Day = "2026-12-30".parse().unwrap();
        let mut book = BudgetBook::default();
        book.book(today, |sums| sums.reserve(PRICE));
        let until = |allowance: Allowance| {
            let reached = allowance.exceeded(&book, today, PRICE);
            reached.map(|(limit, until)| (limit, until.day().to_string()))
        };
        let none = Allowance::default();
        assert_eq!(until(none), None);
        let day = Allowance { solves_per_day: Some(1), ..none };
        assert_eq!(until(day), Some(("solves_per_day", "2026-12-31".into())));
        let month = Allowance { cost_per_month: Some(Money::from_micros(1999)), ..none };
        assert_eq!(until(month), Some(("cost_per_month", "2027-01-01".into())));
        let enough = Allowance { cost_per_month: Some(Money::from_micros(2000)), ..none };
        assert_eq!(until(enough), None);
        assert!(enough.exceeded(&book, today, None).is_some(), "an unknown price fits nowhere");
    }

    #[test]
    fn merging_two_copies_lowers_nothing() {
        let mut older = BudgetBook::default();
        older.book(DAY, |sums| sums.reserve(PRICE));
        let mut newer = older.clone();
        newer.book(DAY, |sums| sums.settle(PRICE, PRICE));
        newer.book(DAY, |sums| sums.reserve(PRICE));
        let mut merged = older.clone();
        merged.raise(&newer);
        assert_eq!(merged, newer);
        merged.raise(&older);
        assert_eq!(merged, newer);
    }
}
