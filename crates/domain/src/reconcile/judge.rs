//! Compares what the provider charged between readings with what the ledger says.

use std::collections::BTreeMap;

use crate::{
    challenge::Kind,
    id::SolveId,
    money::Money,
    time::{Day, Timestamp},
};

use super::{
    BalanceReading,
    collect::{Attempt, Charge, ChargeFact, Collected, Sum},
    sums::Reachable,
};

/// The ledger of a day against the provider's balance.
#[derive(Clone, Debug)]
pub struct Reconciliation {
    /// The day.
    pub day: Day,
    /// The worst verdict of its segments.
    pub verdict: BooksVerdict,
    /// The readings of the balance in the period.
    pub readings: usize,
    /// The parts of the period that are judged. Top-ups lie between them, and parts that do not add up stand alone.
    pub segments: Vec<Segment>,
    /// Rises of the balance.
    pub top_ups: Vec<TopUp>,
    /// The attempts whose charge is uncertain, and which the ledger's sum therefore leaves out.
    pub items: Vec<Item>,
    /// Attempts of the day before the first reading or after the last one: how many, and what they cost.
    pub not_covered: (u64, Money),
    /// The store lost writes on the day, so entries may be missing.
    pub lost_writes: bool,
}

/// Whether the books add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BooksVerdict {
    /// The provider charged what the ledger says, give or take some of the uncertain attempts.
    AddsUp,
    /// There are not two readings of the balance, or attempts whose price nobody knows.
    CannotBeJudged,
    /// The provider charged more or less than the ledger can explain.
    DoesNotAddUp,
}

/// The time between two readings, without a top-up.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The reading at its beginning.
    pub from: BalanceReading,
    /// The reading at its end.
    pub to: BalanceReading,
    /// Attempts that the ledger has with their cost.
    pub attempts: u64,
    /// What they cost.
    pub settled: Money,
    /// What the provider charged, by its balance.
    pub charged: Money,
    /// The least and the most that the uncertain attempts explain of the difference.
    pub explains: (Money, Money),
    /// Attempts in flight at one of its readings, whose charge may lie on either side of it.
    pub in_flight: u64,
    /// Attempts whose price nobody knows.
    pub unpriced: u64,
    /// What remains of the difference when as much as possible is explained: charged too much, or, below zero, too little.
    pub unexplained: Money,
    /// Its verdict.
    pub verdict: BooksVerdict,
}

/// A rise of the balance between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopUp {
    /// When the balance was read before and after it.
    pub between: (Timestamp, Timestamp),
    /// By how much it rose.
    pub at_least: Money,
    /// What was paid in, if the ledger is right about this time. A loss at the same time looks like a smaller top-up.
    pub by_the_ledger: Money,
}

/// An attempt whose charge is uncertain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The solve.
    pub solve: SolveId,
    /// The number of its attempt.
    pub attempt: u32,
    /// The kind of challenge.
    pub kind: Option<Kind>,
    /// When it was last heard of.
    pub at: Timestamp,
    /// Why its charge is uncertain.
    pub doubt: Doubt,
    /// What it may have cost, if anything; empty when no price is known.
    pub prices: Vec<Money>,
}

/// Why the charge of an attempt is uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// Its reply was lost, and nothing was decided yet.
    Ambiguous,
    /// Its reply was lost, and another attempt was authorised.
    Authorised,
    /// Its reply was lost, and it was given up.
    WrittenOff,
    /// It ended, and the provider did not say what it charged.
    UnknownCost,
    /// It has not ended.
    InFlight,
}

/// Where the charge of an attempt lies, seen from a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChargePlace {
    Inside,
    Outside,
    /// It was in flight at the start, and perhaps at the end as well.
    AtStart {
        and_end: bool,
    },
    AtEnd,
}

// === impl Collected ===

impl Collected {
    /// The solves whose list price is needed.
    pub fn unpriced_solves(&self) -> Vec<SolveId> {
        let needs = |charge: &&Charge| match charge.what {
            ChargeFact::Known(cost) => cost == Money::ZERO,
            ChargeFact::Uncertain(_) => true,
        };
        let mut solves: Vec<_> =
            self.charges.iter().filter(needs).map(|charge| charge.attempt.0).collect();
        solves.sort_unstable();
        solves.dedup();
        solves
    }

    /// Judges the day. `prices` are the list prices of single solves, and `top_up` is what was paid in during the period, if
    /// the operator says so.
    pub fn judge(
        &self,
        prices: &BTreeMap<SolveId, Money>,
        top_up: Option<Money>,
    ) -> Reconciliation {
        let Some((first, last)) = self.period() else { return self.unjudged() };
        let mut segments = Vec::new();
        let mut top_ups = Vec::new();
        let mut start = first;
        for next in first + 1..=last {
            if top_up.is_none() && self.is_topped_up(next, prices) {
                if start < next - 1 {
                    segments.push(self.segment(start, next - 1, Money::ZERO, prices));
                }
                top_ups.push(self.top_up(next, prices));
                start = next;
            } else if top_up.is_none() && next < last && self.is_quiet(next) {
                // Nothing crosses this reading, so what lies before it explains nothing after it.
                segments.push(self.segment(start, next, Money::ZERO, prices));
                start = next;
            }
        }
        if start < last {
            segments.push(self.segment(start, last, top_up.unwrap_or_default(), prices));
        }
        let segments = Segment::join_neighbours(segments);
        let verdicts = segments.iter().map(|segment| segment.verdict);
        Reconciliation {
            verdict: verdicts.max().unwrap_or(BooksVerdict::CannotBeJudged),
            readings: last - first + 1,
            segments,
            top_ups,
            items: self.items((first, last), prices),
            not_covered: self.not_covered(first, last),
            ..self.unjudged()
        }
    }

    /// The readings nearest to the beginning and the end of the day.
    fn period(&self) -> Option<(usize, usize)> {
        let distance = |moment: Timestamp, at: usize| {
            let read_at = self.readings[at].at;
            moment.since(read_at).max(read_at.since(moment))
        };
        let (start, end) = (self.day.start(), self.day.end());
        let all = 0..self.readings.len();
        let first = all.clone().min_by_key(|at| distance(start, *at))?;
        let last = all.rev().min_by_key(|at| distance(end, *at))?;
        (first < last).then_some((first, last))
    }

    fn unjudged(&self) -> Reconciliation {
        let all = self.readings.len();
        Reconciliation {
            day: self.day,
            verdict: BooksVerdict::CannotBeJudged,
            readings: all,
            segments: Vec::new(),
            top_ups: Vec::new(),
            items: Vec::new(),
            not_covered: self.not_covered(all, all),
            lost_writes: self.lost_writes,
        }
    }

    /// A rise that refunds of tasks without an answer cannot explain.
    fn is_topped_up(&self, next: usize, prices: &BTreeMap<SolveId, Money>) -> bool {
        let rise = self.rise(next);
        let dearest = prices.values().copied().max().unwrap_or_default();
        let refunds = self.gaps[next].over.iter().map(|(kind, count)| {
            let seen = self.observed.get(kind).and_then(|seen| seen.last().copied());
            let most = seen.unwrap_or_default().max(dearest);
            Money::from_micros(most.micros().saturating_mul(i64::from(*count)))
        });
        rise > refunds.sum()
    }

    /// Whether no attempt was in flight at the reading.
    fn is_quiet(&self, at: usize) -> bool {
        let reading = self.readings[at];
        self.charges
            .iter()
            .all(|charge| charge.closed < reading.asked || charge.opened > reading.read)
    }

    fn rise(&self, next: usize) -> Money {
        self.readings[next].amount - self.readings[next - 1].amount
    }

    fn top_up(&self, next: usize, prices: &BTreeMap<SolveId, Money>) -> TopUp {
        let around = self.segment(next - 1, next, Money::ZERO, prices);
        TopUp {
            between: (around.from.at, around.to.at),
            at_least: self.rise(next),
            by_the_ledger: self.rise(next) + around.settled,
        }
    }

    fn not_covered(&self, first: usize, last: usize) -> (u64, Money) {
        let gaps = self.gaps.iter().enumerate().filter(|(at, _)| *at <= first || *at > last);
        let sums = gaps.map(|(_, gap)| gap.of_day);
        sums.fold((0, Money::ZERO), |(attempts, cost), sum| {
            (attempts + sum.attempts, cost + sum.cost)
        })
    }

    fn segment(
        &self,
        first: usize,
        last: usize,
        paid_in: Money,
        prices: &BTreeMap<SolveId, Money>,
    ) -> Segment {
        let (from, to) = (self.readings[first], self.readings[last]);
        let mut settled = Sum::default();
        for gap in &self.gaps[first + 1..=last] {
            settled.attempts += gap.all.attempts;
            settled.cost = settled.cost + gap.all.cost;
        }
        let (mut uncertain, mut in_flight, mut unpriced) = (Vec::new(), 0, 0);
        for charge in &self.charges {
            match (charge.place(from, to), charge.what) {
                (ChargePlace::Outside, _) => {}
                (ChargePlace::Inside, ChargeFact::Known(cost)) => settled.add(cost),
                (place, what) => {
                    let prices = self.prices(charge, prices);
                    unpriced +=
                        u64::from(prices.is_empty() && what != ChargeFact::Known(Money::ZERO));
                    in_flight += u64::from(place != ChargePlace::Inside);
                    uncertain.push(amounts(place, what, &prices));
                }
            }
        }
        let charged = from.amount - to.amount + paid_in;
        let difference = (charged - settled.cost).micros();
        let sums = Reachable::of(uncertain.iter().map(Vec::as_slice));
        let unexplained = sums.remainder(difference);
        let verdict = match (unexplained, unpriced) {
            (0, 0) => BooksVerdict::AddsUp,
            (0.., 1..) => BooksVerdict::CannotBeJudged,
            _ => BooksVerdict::DoesNotAddUp,
        };
        Segment {
            from,
            to,
            attempts: settled.attempts,
            settled: settled.cost,
            charged,
            explains: (Money::from_micros(sums.least()), Money::from_micros(sums.most())),
            in_flight,
            unpriced,
            unexplained: Money::from_micros(unexplained),
            verdict,
        }
    }

    /// What the attempt may have cost: the list price of its solve, and what others of its kind cost.
    fn prices(&self, charge: &Charge, prices: &BTreeMap<SolveId, Money>) -> Vec<Money> {
        let listed = prices.get(&charge.attempt.0).copied();
        let observed = charge.kind.as_ref().and_then(|kind| self.observed.get(kind));
        let known = match charge.what {
            ChargeFact::Known(cost) if cost > Money::ZERO => Some(cost),
            ChargeFact::Known(_) | ChargeFact::Uncertain(_) => None,
        };
        let others = known.is_none().then_some(observed).flatten().into_iter().flatten().copied();
        let mut all: Vec<_> = known.or(listed).into_iter().chain(others).collect();
        all.retain(|price| *price > Money::ZERO);
        all.sort_unstable();
        all.dedup();
        // A list price of nothing is a price.
        if all.is_empty() && listed.is_some() { vec![Money::ZERO] } else { all }
    }

    fn items(&self, period: (usize, usize), prices: &BTreeMap<SolveId, Money>) -> Vec<Item> {
        let (from, to) = (self.readings[period.0], self.readings[period.1]);
        let mut items: Vec<Item> = self
            .charges
            .iter()
            .filter(|charge| charge.place(from, to) != ChargePlace::Outside)
            .filter_map(|charge| {
                let ChargeFact::Uncertain(doubt) = charge.what else { return None };
                let (solve, attempt): Attempt = charge.attempt;
                let (kind, at) = (charge.kind.clone(), charge.at);
                let prices = self.prices(charge, prices);
                Some(Item { solve, attempt, kind, at, doubt, prices })
            })
            .collect();
        items.sort_by_key(|item| (item.doubt, item.at, item.solve, item.attempt));
        items
    }
}

// === impl Segment ===

impl Segment {
    /// Joins neighbours that nothing is wrong with.
    fn join_neighbours(segments: Vec<Self>) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::new();
        for next in segments {
            match joined.last_mut() {
                Some(last) if last.is_like(&next) => last.join(&next),
                Some(_) | None => joined.push(next),
            }
        }
        joined
    }

    fn is_like(&self, next: &Self) -> bool {
        self.to == next.from
            && self.verdict == next.verdict
            && self.verdict != BooksVerdict::DoesNotAddUp
    }

    fn join(&mut self, next: &Self) {
        self.to = next.to;
        self.attempts += next.attempts;
        self.settled = self.settled + next.settled;
        self.charged = self.charged + next.charged;
        self.explains = (self.explains.0 + next.explains.0, self.explains.1 + next.explains.1);
        self.in_flight += next.in_flight;
        self.unpriced += next.unpriced;
        self.unexplained = self.unexplained + next.unexplained;
    }
}

// === impl Charge ===

impl Charge {
    fn place(&self, from: BalanceReading, to: BalanceReading) -> ChargePlace {
        if self.closed < from.asked || self.opened > to.read {
            return ChargePlace::Outside;
        }
        let (in_at_start, in_at_end) = (self.opened <= from.read, self.closed >= to.asked);
        match (in_at_start, in_at_end) {
            (false, false) => ChargePlace::Inside,
            (true, and_end) => ChargePlace::AtStart { and_end },
            (false, true) => ChargePlace::AtEnd,
        }
    }
}

/// What a charge may add to the provider's side, beside nothing. At the start, its price may have been charged before and
/// given back since.
fn amounts(place: ChargePlace, what: ChargeFact, prices: &[Money]) -> Vec<i64> {
    let charged = prices.iter().map(|price| price.micros());
    let mut all: Vec<i64> = match (place, what) {
        (ChargePlace::Inside | ChargePlace::Outside | ChargePlace::AtEnd, _)
        | (
            ChargePlace::AtStart { .. },
            ChargeFact::Uncertain(Doubt::Ambiguous | Doubt::Authorised | Doubt::WrittenOff),
        ) => charged.collect(),
        (ChargePlace::AtStart { and_end }, ChargeFact::Known(cost)) => {
            let later = charged.clone().filter(|_| and_end);
            charged
                .clone()
                .map(|price| cost.micros() - price)
                .chain([cost.micros()])
                .chain(later)
                .collect()
        }
        (
            ChargePlace::AtStart { .. },
            ChargeFact::Uncertain(Doubt::UnknownCost | Doubt::InFlight),
        ) => charged.flat_map(|price| [price, -price]).collect(),
    };
    all.retain(|amount| *amount != 0);
    all.sort_unstable();
    all.dedup();
    all
}
