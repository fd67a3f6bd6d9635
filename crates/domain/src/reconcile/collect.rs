//! Reads the ledger entry by entry. What it keeps is bounded by the readings, by the attempts in flight at each of them, and
//! by the attempts whose charge nobody knows.
#![expect(clippy::wildcard_enum_match_arm, reason = "it names the events it is about")]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    challenge::Kind,
    id::SolveId,
    ledger::{Entry, Event},
    money::Money,
    retry::own,
    time::{Day, Timestamp},
};

use super::{BalanceReading, Doubt};

/// Reads the entries around a day, in order.
#[derive(Debug)]
pub struct Collector {
    day: Day,
    /// The place of the last entry.
    place: u64,
    pending: BTreeMap<u32, Asked>,
    /// The place at which a balance was last asked for or read.
    last_reading: u64,
    open: BTreeMap<Attempt, OpenAttempt>,
    /// When attempts and readings were last given up.
    expired_at: Timestamp,
    done: Collected,
}

/// What the ledger says around a day.
#[derive(Debug)]
pub struct Collected {
    pub(super) day: Day,
    pub(super) readings: Vec<BalanceReading>,
    /// The certain charges: before the first reading, then after each of them.
    pub(super) gaps: Vec<Gap>,
    /// The other charges.
    pub(super) charges: Vec<Charge>,
    /// What attempts of each kind cost.
    pub(super) observed: BTreeMap<Kind, BTreeSet<Money>>,
    /// The store lost writes, so entries may be missing.
    pub(super) lost_writes: bool,
}

/// A solve and the number of its attempt.
pub(super) type Attempt = (SolveId, u32);

/// The charges that lie between two readings for certain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) all: Sum,
    /// The part that was written on the day.
    pub(super) of_day: Sum,
    /// Tasks that ended without an answer. The provider may have given their price back.
    pub(super) over: BTreeMap<Kind, u32>,
}

/// Attempts and what they cost together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) attempts: u64,
    pub(super) cost: Money,
}

/// An attempt whose charge is unknown, or that was in flight while the balance was read.
#[derive(Clone, Debug)]
pub(super) struct Charge {
    pub(super) attempt: Attempt,
    pub(super) kind: Option<Kind>,
    /// The places between which the provider charged, if it did.
    pub(super) opened: u64,
    pub(super) closed: u64,
    /// When it ended, or was last heard of.
    pub(super) at: Timestamp,
    pub(super) what: ChargeFact,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChargeFact {
    Known(Money),
    Uncertain(Doubt),
}

#[derive(Debug)]
struct Asked {
    place: u64,
    at: Timestamp,
}

#[derive(Debug)]
struct OpenAttempt {
    kind: Option<Kind>,
    opened: u64,
    at: Timestamp,
    /// Why its charge is uncertain, and since when.
    lost: Option<(Doubt, Timestamp)>,
}

/// A balance that was asked for so long ago is not answered any more.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);
/// How long after a lost reply its attempt may be charged: tasks are answered within it, or never.
const CHARGED_WITHIN: Duration = Duration::from_secs(600);
/// Different prices of a kind that count as what an uncertain attempt of it may have cost.
const MOST_PRICES: usize = 8;

// === impl Collector ===

impl Collector {
    /// A collector for a day. Its entries are to begin some time before the day.
    pub fn new(day: Day) -> Self {
        Self {
            day,
            place: 0,
            pending: BTreeMap::new(),
            last_reading: 0,
            open: BTreeMap::new(),
            expired_at: Timestamp::default(),
            done: Collected {
                day,
                readings: Vec::new(),
                gaps: vec![Gap::default()],
                charges: Vec::new(),
                observed: BTreeMap::new(),
                lost_writes: false,
            },
        }
    }

    /// Reads the next entry.
    pub fn add(&mut self, entry: &Entry) {
        self.place += 1;
        self.expire(entry.at);
        match &entry.event {
            Event::BalanceAsked { number } => {
                self.last_reading = self.place;
                self.pending.insert(*number, Asked { place: self.place, at: entry.at });
            }
            Event::BalanceRead { number, amount } => self.read(*number, *amount, entry.at),
            Event::WritesLost { .. } => self.done.lost_writes |= entry.at.day() == self.day,
            _ => {
                if let Some(solve) = entry.solve {
                    self.follow(solve, entry);
                }
            }
        }
    }

    /// Everything was read.
    pub fn finish(mut self) -> Collected {
        for (attempt, open) in std::mem::take(&mut self.open) {
            let OpenAttempt { kind, opened, at, lost } = open;
            let doubt = lost.map_or(Doubt::InFlight, |(doubt, _)| doubt);
            let what = ChargeFact::Uncertain(doubt);
            let charge = Charge { attempt, kind, opened, closed: u64::MAX, at, what };
            self.done.charges.push(charge);
        }
        self.done
    }

    fn read(&mut self, number: u32, amount: Money, at: Timestamp) {
        let Some(asked) = self.pending.remove(&number) else { return };
        let reading = BalanceReading { at, amount, asked: asked.place, read: self.place };
        // Two gateways may read at the same time. Readings that overlap say the same.
        if self.done.readings.last().is_some_and(|last| reading.asked <= last.read) {
            return;
        }
        self.last_reading = self.place;
        self.done.readings.push(reading);
        self.done.gaps.push(Gap::default());
    }

    /// Gives up, once a second, what nobody will answer any more.
    fn expire(&mut self, now: Timestamp) {
        if now.since(self.expired_at) < Duration::from_secs(1) {
            return;
        }
        self.expired_at = now;
        self.pending.retain(|_, asked| now.since(asked.at) < ANSWERED_WITHIN);
        let is_over = |open: &OpenAttempt| {
            open.lost.is_some_and(|(_, since)| now.since(since) >= CHARGED_WITHIN)
        };
        let over: Vec<Attempt> =
            self.open.iter().filter(|(_, open)| is_over(open)).map(|(id, _)| *id).collect();
        for attempt in over {
            let Some(OpenAttempt { kind, opened, at, lost }) = self.open.remove(&attempt) else {
                continue;
            };
            let what = ChargeFact::Uncertain(lost.map_or(Doubt::Ambiguous, |(doubt, _)| doubt));
            let closed = self.place - 1;
            self.done.charges.push(Charge { attempt, kind, opened, closed, at, what });
        }
    }

    /// Follows the attempts of a solve.
    fn follow(&mut self, solve: SolveId, entry: &Entry) {
        let at = entry.at;
        match &entry.event {
            Event::Intent { attempt, .. } => {
                let opened = self.place;
                let open = OpenAttempt { kind: entry.kind.clone(), opened, at, lost: None };
                self.open.insert((solve, *attempt), open);
            }
            Event::NotAccepted { attempt, code } if code.as_str() == own::DUPLICATE_TASK => {
                self.close((solve, *attempt), entry, None);
            }
            Event::NotAccepted { attempt, .. } => drop(self.take((solve, *attempt))),
            Event::Accepted { attempt, .. } => {
                if let Some(mut open) = self.take((solve, *attempt)) {
                    open.lost = None;
                    self.open.insert((solve, *attempt), open);
                }
            }
            Event::Ambiguous { attempt, .. } => {
                self.doubt((solve, *attempt), entry, Doubt::Ambiguous);
            }
            Event::Authorised { attempt, .. } => {
                self.doubt((solve, *attempt), entry, Doubt::Authorised);
            }
            Event::WrittenOff { attempt } => {
                self.doubt((solve, *attempt), entry, Doubt::WrittenOff);
            }
            Event::Orphaned { attempt, by, .. } => {
                let known = self.take((solve, *attempt));
                let opened = known.map_or(0, |open| open.opened);
                let open = OpenAttempt { kind: entry.kind.clone(), opened, at, lost: None };
                self.open.insert((*by, 1), open);
            }
            Event::TaskOver { attempt, cost, .. } | Event::Ready { attempt, cost, .. } => {
                self.close((solve, *attempt), entry, *cost);
            }
            _ => {}
        }
    }

    /// The reply of an attempt was lost, or something was decided about it.
    fn doubt(&mut self, attempt: Attempt, entry: &Entry, doubt: Doubt) {
        let known = self.take(attempt);
        let (opened, since) = match known {
            Some(open) => (open.opened, open.lost.map_or(entry.at, |(_, since)| since)),
            None => (0, entry.at),
        };
        let (kind, at) = (entry.kind.clone(), entry.at);
        self.open.insert(attempt, OpenAttempt { kind, opened, at, lost: Some((doubt, since)) });
    }

    /// Takes an attempt back, also one that was taken for over before this evidence.
    fn take(&mut self, attempt: Attempt) -> Option<OpenAttempt> {
        if let Some(open) = self.open.remove(&attempt) {
            return Some(open);
        }
        let is_it = |charge: &Charge| {
            charge.attempt == attempt && matches!(charge.what, ChargeFact::Uncertain(_))
        };
        let found = self.done.charges.iter().rposition(is_it)?;
        let Charge { kind, opened, at, .. } = self.done.charges.swap_remove(found);
        Some(OpenAttempt { kind, opened, at, lost: None })
    }

    fn close(&mut self, attempt: Attempt, entry: &Entry, cost: Option<Money>) {
        // One that is not known began before the first entry.
        let opened = self.take(attempt).map_or(0, |open| open.opened);
        let kind = entry.kind.clone();
        if let (Some(kind), Some(cost)) = (&kind, cost)
            && cost > Money::ZERO
        {
            self.done.observe(kind, cost);
        }
        let of_day = entry.at.day() == self.day;
        let gap = self.done.gaps.last_mut().expect("there is always one");
        if let (Some(kind), Event::TaskOver { .. }) = (&kind, &entry.event) {
            *gap.over.entry(kind.clone()).or_default() += 1;
        }
        match cost {
            Some(cost) if opened > self.last_reading && self.pending.is_empty() => {
                gap.all.add(cost);
                if of_day {
                    gap.of_day.add(cost);
                }
            }
            Some(_) | None => {
                let doubt = ChargeFact::Uncertain(Doubt::UnknownCost);
                let what = cost.map_or(doubt, ChargeFact::Known);
                let (closed, at) = (self.place, entry.at);
                self.done.charges.push(Charge { attempt, kind, opened, closed, at, what });
            }
        }
    }
}

// === impl Collected ===

impl Collected {
    /// Whether the reading with this amount is the last one, at or after the time.
    pub fn ends_with_reading_since(&self, at: Timestamp) -> bool {
        self.readings.last().is_some_and(|last| last.at >= at)
    }

    fn observe(&mut self, kind: &Kind, cost: Money) {
        let prices = self.observed.entry(kind.clone()).or_default();
        if prices.len() < MOST_PRICES {
            prices.insert(cost);
        }
    }
}

// === impl Sum ===

impl Sum {
    pub(super) fn add(&mut self, cost: Money) {
        self.attempts += 1;
        self.cost = self.cost + cost;
    }
}
