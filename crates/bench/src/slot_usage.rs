//! Slot usage from two ledgers: the gateway's, from the intent of each attempt until it is settled, and the provider's,
//! from the acceptance of each task until it is done.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    id::{SolveId, WorkerName},
    ledger::{Entry, Event},
    time::Timestamp,
};
use simulator::Ledger;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

/// An accepted attempt: its worker, and how long it had a slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotUse {
    pub(crate) worker: WorkerName,
    pub(crate) span: Span,
}

#[derive(Debug, Default)]
pub(crate) struct SlotUsage {
    /// Accepted attempts, in the order they ended.
    pub(crate) taken: Vec<SlotUse>,
    /// The times at which the provider had no free slot.
    pub(crate) refused: Vec<Timestamp>,
    /// The last intent; claims waited until then.
    pub(crate) last: Option<Timestamp>,
}

/// A number that changes over time, 0 before its first change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level(BTreeMap<Timestamp, i64>);

// === impl Span ===

impl Span {
    pub(crate) fn length(self) -> Duration {
        self.to.since(self.from)
    }

    /// The part of it within another span.
    pub(crate) fn within(self, other: Self) -> Self {
        let from = self.from.clamp(other.from, other.to);
        Self { from, to: self.to.clamp(from, other.to.max(from)) }
    }
}

// === impl SlotUsage ===

impl SlotUsage {
    /// All attempts in the ledger; one still in flight at `end` has its slot until then.
    pub(crate) fn of(entries: &[Entry], end: Timestamp) -> Self {
        let mut turns = Self::default();
        let mut out: BTreeMap<SolveId, (&WorkerName, Timestamp)> = BTreeMap::new();
        for entry in entries {
            let Some(solve) = entry.solve else { continue };
            if matches!(entry.event, Event::Intent { .. }) {
                out.insert(solve, (&entry.worker, entry.at));
                turns.last = Some(entry.at);
            } else if matches!(entry.event, Event::NotAccepted { .. }) {
                out.remove(&solve);
                turns.refused.push(entry.at);
            } else if matches!(entry.event, Event::Ready { .. } | Event::TaskOver { .. })
                && let Some((worker, from)) = out.remove(&solve)
            {
                turns.take(worker, Span { from, to: entry.at });
            }
        }
        for (worker, from) in out.into_values() {
            turns.take(worker, Span { from, to: end });
        }
        turns
    }

    fn take(&mut self, worker: &WorkerName, span: Span) {
        self.taken.push(SlotUse { worker: worker.clone(), span });
    }

    /// The number of slots in use.
    pub(crate) fn level(&self) -> Level {
        Level::of(self.taken.iter().map(|turn| turn.span))
    }

    /// The time while all workers still waited for a slot: until the last attempt of the first worker to finish.
    pub(crate) fn while_all_wait(&self, from: Timestamp) -> Span {
        let mut last = BTreeMap::new();
        for turn in &self.taken {
            let at = last.entry(&turn.worker).or_insert(turn.span.from);
            *at = turn.span.from.max(*at);
        }
        Span { from, to: last.into_values().min().unwrap_or(from) }
    }

    /// A worker's share of all slot time in the span.
    pub(crate) fn share(&self, worker: &WorkerName, span: Span) -> f64 {
        let time = |turns: &mut dyn Iterator<Item = &SlotUse>| -> f64 {
            turns.map(|turn| turn.span.within(span).length().as_secs_f64()).sum()
        };
        let own = time(&mut self.taken.iter().filter(|turn| turn.worker == *worker));
        own / time(&mut self.taken.iter())
    }

    /// Refusals in the worst minute.
    pub(crate) fn worst_minute(&self) -> usize {
        most_within(Duration::from_secs(60), &self.refused)
    }
}

/// The maximum number of these sorted moments within any window of this length.
pub(crate) fn most_within(length: Duration, moments: &[Timestamp]) -> usize {
    let from = |(n, first): (usize, &Timestamp)| {
        moments[n..].partition_point(|at| *at < first.plus(length))
    };
    moments.iter().enumerate().map(from).max().unwrap_or(0)
}

// === impl Level ===

impl Level {
    /// The number of spans at each time.
    pub(crate) fn of(spans: impl IntoIterator<Item = Span>) -> Self {
        let mut changes: BTreeMap<Timestamp, i64> = BTreeMap::new();
        for Span { from, to } in spans {
            *changes.entry(from).or_default() += 1;
            *changes.entry(to).or_default() -= 1;
        }
        let mut level = 0;
        for change in changes.values_mut() {
            level += *change;
            *change = level;
        }
        Self(changes)
    }

    /// The number of tasks the provider worked on.
    pub(crate) fn at_work(ledger: &Ledger) -> Self {
        let spans = ledger.accepted.iter();
        Self::of(spans.filter_map(|task| Some(Span { from: task.at, to: task.ready_at? })))
    }

    pub(crate) fn set(&mut self, at: Timestamp, level: u32) {
        self.0.insert(at, i64::from(level));
    }

    pub(crate) fn most(&self) -> i64 {
        self.0.values().copied().max().unwrap_or(0)
    }

    fn at(&self, moment: Timestamp) -> i64 {
        self.0.range(..=moment).next_back().map_or(0, |(_, level)| *level)
    }

    /// The unused share of the available slots in the span. More in use than available (threads were removed under
    /// running tasks) does not compensate for idle ones.
    pub(crate) fn idle(there: &Self, used: &Self, span: Span) -> f64 {
        let changes = |level: &Self| level.0.range(span.from..span.to).map(|(at, _)| *at).collect();
        let mut moments: Vec<Timestamp> = changes(there);
        let more: Vec<Timestamp> = changes(used);
        moments.extend(more);
        moments.extend([span.from, span.to]);
        moments.sort_unstable();
        let (mut all, mut idle) = (0.0, 0.0);
        for pair in moments.windows(2) {
            let seconds = pair[1].since(pair[0]).as_secs_f64();
            let there = there.at(pair[0]);
            all += seconds * as_f64(there);
            idle += seconds * as_f64((there - used.at(pair[0])).max(0));
        }
        idle / all
    }
}

fn as_f64(count: i64) -> f64 {
    i32::try_from(count).map_or(f64::NAN, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn span(from: u64, to: u64) -> Span {
        Span { from: at(from), to: at(to) }
    }

    #[test]
    fn idle_is_what_nobody_used_of_what_was_there() {
        let mut there = Level::default();
        there.set(at(0), 2);
        there.set(at(10), 1);
        // Two of ten seconds are empty in one of two slots; then two tasks run where there is only one thread.
        let used = Level::of([span(0, 20), span(2, 14)]);
        assert_eq!((used.most(), used.at(at(2)), used.at(at(14))), (2, 2, 1));
        let idle = Level::idle(&there, &used, span(0, 20));
        assert!((idle - 2.0 / 30.0).abs() < 1e-9, "{idle}");
    }

    #[test]
    fn one_that_ends_as_another_begins_leaves_no_gap() {
        let mut there = Level::default();
        there.set(at(0), 1);
        let used = Level::of([span(0, 5), span(5, 10)]);
        assert_eq!(used.most(), 1);
        assert!(Level::idle(&there, &used, span(0, 10)).abs() < 1e-9);
    }

    #[test]
    fn shares_are_of_the_time_in_which_all_wait() {
        let name = |text| WorkerName::new(text).unwrap();
        let turn = |worker, from, to| SlotUse { worker: name(worker), span: span(from, to) };
        let taken = vec![turn("a", 0, 10), turn("b", 0, 30), turn("a", 10, 20), turn("a", 20, 40)];
        let turns = SlotUsage { taken, ..SlotUsage::default() };
        let all = turns.while_all_wait(at(0));
        assert_eq!(all, span(0, 0), "b had its only turn at once");
        assert!((turns.share(&name("a"), span(5, 25)) - 0.5).abs() < 1e-9);
        assert!((turns.share(&name("b"), span(0, 40)) - 30.0 / 70.0).abs() < 1e-9);
    }

    #[test]
    fn the_worst_minute_may_begin_anywhere() {
        let turns = SlotUsage {
            refused: [0, 50, 70, 100, 109, 200].map(at).into(),
            ..SlotUsage::default()
        };
        assert_eq!(turns.worst_minute(), 4);
        assert_eq!(SlotUsage::default().worst_minute(), 0);
    }
}
