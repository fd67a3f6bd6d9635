//! Fair queue of solves that wait for a slot. Workers share slot time, not turns, in proportion to their priority.
//!
//! The lane goes first that has used the least: the slot time of its turns so far, those under way included, and for each of
//! these one more turn, because it will go on for a while. Nothing is estimated, so a wrong estimate cannot favour a worker.
//! A lane that starts to wait is level with the others: it neither owes what it used while it was alone, nor has it saved up
//! what it did not use. This is start-time fair queueing with the real slot time in place of a packet's length.
//!
//! Within a lane the oldest goes first; work that somebody waits for goes before refills, and retries need the retry budget.
//! Revived dead letters share one lane, so that thousands of them neither delay live claims nor starve. Paused work is
//! parked: it keeps its place and counts as queued, but takes no turn.

use std::collections::BTreeMap;

use domain::{
    id::{SolveId, WorkerName},
    solve::{Origin, Solve},
    time::Timestamp,
};

use super::queue_room::Load;

#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    lanes: BTreeMap<LaneName, Lane<T>>,
    /// The slot time used by the waiting lane that has used the least. Never falls.
    level: SlotTime,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LaneName {
    Worker(WorkerName),
    Revived,
}

#[derive(Debug)]
pub(crate) struct QueuedSolve<T> {
    pub(crate) lane: LaneName,
    /// Orders the lane.
    pub(crate) opened_at: Timestamp,
    pub(crate) solve: SolveId,
    pub(crate) kind: WorkKind,
    /// The size of its pictures.
    pub(crate) bytes: usize,
    pub(crate) item: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkKind {
    /// The first submission of a solve.
    Fresh,
    Retry,
    /// For a pool: nobody waits for it.
    Refill,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: BTreeMap<WorkKind, BTreeMap<(Timestamp, SolveId), QueuedSolve<T>>>,
    /// Paused work.
    parked: BTreeMap<(Timestamp, SolveId), QueuedSolve<T>>,
    /// The size of the pictures of all its solves.
    bytes: usize,
    /// The slot time of its turns that are over.
    used: SlotTime,
    priority: u32,
    /// Turns under way.
    out: u64,
    /// The sum of their starts, in milliseconds.
    started: u64,
    /// How long its last turn took.
    last_turn: u64,
}

/// Microseconds of a slot, divided by the priority of the lane.
type SlotTime = u64;

/// Milliseconds that a turn under way is expected to go on. About what a task takes; it only decides how evenly the slots
/// are spread at a moment, not how much slot time a lane gets.
const TURN: u64 = 15_000;
/// A lane is never further ahead of the others than by its last turn, and than by this many milliseconds.
const MAX_DEBT: u64 = 60_000;

// === impl LaneName ===

impl LaneName {
    pub(crate) fn of(solve: &Solve) -> Self {
        match solve.origin {
            Origin::Revived { .. } => Self::Revived,
            Origin::Claim(_) | Origin::Orphan(_) | Origin::Refill => {
                Self::Worker(solve.worker.clone())
            }
        }
    }
}

// === impl QueuedSolve ===

impl<T> QueuedSolve<T> {
    /// Its place in the lane.
    fn place(&self) -> (Timestamp, SolveId) {
        (self.opened_at, self.solve)
    }
}

// === impl FairQueue ===

impl<T> FairQueue<T> {
    pub(crate) fn new() -> Self {
        Self { lanes: BTreeMap::new(), level: 0 }
    }

    pub(crate) fn push(&mut self, waiting: QueuedSolve<T>, priority: u32, now: Timestamp) {
        self.raise_level(now);
        let level = self.level;
        let lane = self.lane(&waiting, priority);
        if lane.has_none_ready() {
            lane.catch_up_with(level, now);
        }
        lane.insert(waiting);
    }

    /// Adds paused work.
    pub(crate) fn park(&mut self, waiting: QueuedSolve<T>, priority: u32) {
        let lane = self.lane(&waiting, priority);
        lane.parked.insert(waiting.place(), waiting);
    }

    fn lane(&mut self, waiting: &QueuedSolve<T>, priority: u32) -> &mut Lane<T> {
        let lane = self.lanes.entry(waiting.lane.clone()).or_insert_with(Lane::new);
        lane.priority = priority.max(1);
        lane.bytes += waiting.bytes;
        lane
    }

    /// The pauses have changed: parks what is paused now, and lets the rest go on.
    pub(crate) fn sort_parked(&mut self, now: Timestamp, is_paused: impl Fn(&T) -> bool) {
        self.raise_level(now);
        for lane in self.lanes.values_mut() {
            if lane.has_none_ready() {
                lane.catch_up_with(self.level, now);
            }
            lane.sort_parked(&is_paused);
        }
    }

    /// Takes the next one: live work before refills, retries only if the budget allows one.
    pub(crate) fn pop(&mut self, may_retry: bool, now: Timestamp) -> Option<QueuedSolve<T>> {
        let live = self.lanes.values().any(|lane| lane.has_live(may_retry));
        let may_go = |lane: &&Lane<T>| lane.next(may_retry, !live).is_some();
        let least = self.lanes.values().filter(may_go).map(|lane| lane.used(now)).min()?;
        self.level = self.level.max(least);
        let mut first = None;
        for lane in self.lanes.values_mut() {
            let Some((kind, since)) = lane.next(may_retry, !live) else {
                lane.catch_up_with(self.level, now);
                continue;
            };
            lane.forgive_debt(self.level, now);
            let order = (lane.expected_use(now), since);
            if first.as_ref().is_none_or(|(best, _, _)| order < *best) {
                first = Some((order, kind, lane));
            }
        }
        let (_, kind, lane) = first?;
        let next = lane.take(kind)?;
        lane.begin_turn(now);
        Some(next)
    }

    /// A solve of the lane takes a turn without having waited, while no lane has any that waits.
    pub(crate) fn take_turn(&mut self, name: &LaneName, priority: u32, now: Timestamp) {
        self.raise_level(now);
        let lane = self.lanes.entry(name.clone()).or_insert_with(Lane::new);
        lane.priority = priority.max(1);
        lane.catch_up_with(self.level, now);
        self.level = self.level.max(lane.used(now));
        lane.begin_turn(now);
        for lane in self.lanes.values_mut() {
            lane.catch_up_with(self.level, now);
        }
    }

    /// Nothing came of a turn that began at `since`: it counts as not taken.
    pub(crate) fn cancel_turn(&mut self, name: &LaneName, since: Timestamp) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        lane.leave_turn(since);
        if lane.is_unused() {
            self.lanes.remove(name);
        }
    }

    /// A turn is over that began at `since`.
    pub(crate) fn settle(&mut self, name: &LaneName, since: Timestamp, now: Timestamp) {
        self.raise_level(now);
        let Some(lane) = self.lanes.get_mut(name) else { return };
        lane.end_turn(since, now);
        if lane.is_unused() {
            self.lanes.remove(name);
        }
    }

    /// Raises the level to that of the lane that has used the least, of those that wait or, if none does, of those that have
    /// turns under way.
    fn raise_level(&mut self, now: Timestamp) {
        let of = |lanes: &mut dyn Iterator<Item = &Lane<T>>| lanes.map(|lane| lane.used(now)).min();
        let waiting = of(&mut self.lanes.values().filter(|lane| !lane.has_none_ready()));
        let least = waiting.or_else(|| of(&mut self.lanes.values().filter(|lane| lane.out > 0)));
        self.level = self.level.max(least.unwrap_or_default());
    }

    pub(crate) fn remove_where(&mut self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for lane in self.lanes.values_mut() {
            for line in lane.waiting.values_mut().chain([&mut lane.parked]) {
                let keys: Vec<_> = line
                    .iter()
                    .filter(|(_, one)| matches(&one.item))
                    .map(|(key, _)| *key)
                    .collect();
                for one in keys.iter().filter_map(|key| line.remove(key)) {
                    lane.bytes -= one.bytes;
                    removed.push(one.item);
                }
            }
        }
        self.lanes.retain(|_, lane| !lane.is_unused());
        removed
    }

    /// The lane it waits in, and since when.
    pub(crate) fn position(&self, id: SolveId) -> Option<(LaneName, Timestamp)> {
        let within = |lane: &Lane<T>| {
            let mut keys = lane.waiting.values().chain([&lane.parked]).flat_map(BTreeMap::keys);
            keys.find(|(_, waiting)| *waiting == id).map(|(since, _)| *since)
        };
        self.lanes.iter().find_map(|(name, lane)| Some((name.clone(), within(lane)?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.values().map(Lane::len).sum()
    }

    /// How many of them are paused.
    pub(crate) fn parked(&self) -> usize {
        self.lanes.values().map(|lane| lane.parked.len()).sum()
    }

    /// Whether any of them may take a turn.
    pub(crate) fn has_ready(&self) -> bool {
        self.lanes.values().any(|lane| !lane.has_none_ready())
    }

    pub(crate) fn load(&self, name: &LaneName) -> Load {
        self.lanes.get(name).map(Lane::load).unwrap_or_default()
    }

    pub(crate) fn total_load(&self) -> Load {
        self.lanes.values().map(Lane::load).fold(Load::default(), Load::plus)
    }

    /// Whether only retries wait, so that time alone helps.
    pub(crate) fn has_only_retries(&self) -> bool {
        let others = |lane: &Lane<T>| lane.has(WorkKind::Fresh) || lane.has(WorkKind::Refill);
        self.has_ready() && !self.lanes.values().any(others)
    }

    /// How many solves of the lane go before one that is opened now: all that somebody waits for, because they are older. Every
    /// claim asks this, so nothing is counted one by one.
    pub(crate) fn ahead_of_next(&self, name: &LaneName) -> usize {
        self.lanes.get(name).map_or(0, |lane| {
            let live = lane.waiting.iter().filter(|(kind, _)| **kind != WorkKind::Refill);
            live.map(|(_, line)| line.len()).sum()
        })
    }

    /// How many solves of the lane go before one that was opened then, and the lane's share of the slots in thousandths.
    pub(crate) fn ahead(&self, name: &LaneName, opened_at: Timestamp) -> (usize, u64) {
        let before = (opened_at, SolveId::from_number(0));
        let lane = self.lanes.get(name);
        let ahead = lane.map_or(0, |lane| {
            let live = lane.waiting.iter().filter(|(kind, _)| **kind != WorkKind::Refill);
            live.map(|(_, line)| line.range(..before).count()).sum()
        });
        let own = lane.map_or(1, |lane| u64::from(lane.priority));
        let busy =
            self.lanes.iter().filter(|(other, lane)| *other != name && !lane.has_none_ready());
        let all: u64 = own + busy.map(|(_, lane)| u64::from(lane.priority)).sum::<u64>();
        (ahead, own * 1000 / all)
    }
}

// === impl Lane ===

impl<T> Lane<T> {
    fn new() -> Self {
        let (waiting, parked) = (BTreeMap::new(), BTreeMap::new());
        let (used, out, started, last_turn) = (0, 0, 0, 0);
        Self { waiting, parked, bytes: 0, used, priority: 1, out, started, last_turn }
    }

    fn insert(&mut self, one: QueuedSolve<T>) {
        self.waiting.entry(one.kind).or_default().insert(one.place(), one);
    }

    fn sort_parked(&mut self, is_paused: impl Fn(&T) -> bool) {
        let mut all = std::mem::take(&mut self.parked);
        all.extend(std::mem::take(&mut self.waiting).into_values().flatten());
        for (place, one) in all {
            if is_paused(&one.item) {
                self.parked.insert(place, one);
            } else {
                self.insert(one);
            }
        }
    }

    fn load(&self) -> Load {
        Load { solves: self.len(), bytes: self.bytes }
    }

    fn len(&self) -> usize {
        self.waiting.values().map(BTreeMap::len).sum::<usize>() + self.parked.len()
    }

    /// Whether nothing of it may take a turn.
    fn has_none_ready(&self) -> bool {
        self.waiting.values().all(BTreeMap::is_empty)
    }

    fn is_unused(&self) -> bool {
        self.has_none_ready() && self.parked.is_empty() && self.out == 0
    }

    fn has(&self, kind: WorkKind) -> bool {
        self.waiting.get(&kind).is_some_and(|line| !line.is_empty())
    }

    fn has_live(&self, may_retry: bool) -> bool {
        self.has(WorkKind::Fresh) || (may_retry && self.has(WorkKind::Retry))
    }

    /// The kind and the place of the oldest solve that may go.
    fn next(&self, may_retry: bool, may_refill: bool) -> Option<(WorkKind, (Timestamp, SolveId))> {
        let first = |kind| {
            let line = self.waiting.get(&kind)?;
            line.first_key_value().map(|(place, _)| (kind, *place))
        };
        let retry = first(WorkKind::Retry).filter(|_| may_retry);
        let live = first(WorkKind::Fresh).into_iter().chain(retry).min_by_key(|(_, place)| *place);
        live.or_else(|| first(WorkKind::Refill).filter(|_| may_refill))
    }

    fn take(&mut self, kind: WorkKind) -> Option<QueuedSolve<T>> {
        let (_, one) = self.waiting.get_mut(&kind)?.pop_first()?;
        self.bytes -= one.bytes;
        Some(one)
    }

    // --- slot time ---

    /// The slot time of all its turns until now.
    fn used(&self, now: Timestamp) -> SlotTime {
        let under_way = (self.out * now.millis()).saturating_sub(self.started);
        self.used + self.weighted(under_way)
    }

    /// The slot time of its turns by their expected end.
    fn expected_use(&self, now: Timestamp) -> SlotTime {
        self.used(now) + self.weighted(self.out * TURN)
    }

    fn weighted(&self, millis: u64) -> SlotTime {
        millis * 1000 / u64::from(self.priority)
    }

    fn end_turn(&mut self, since: Timestamp, now: Timestamp) {
        self.last_turn = now.since(since).as_millis().try_into().unwrap_or(u64::MAX);
        self.used += self.weighted(self.last_turn);
        self.leave_turn(since);
    }

    fn begin_turn(&mut self, now: Timestamp) {
        self.out += 1;
        self.started += now.millis();
    }

    fn leave_turn(&mut self, since: Timestamp) {
        self.out = self.out.saturating_sub(1);
        self.started = self.started.saturating_sub(since.millis());
    }

    /// It begins to wait: what it did not use before is not saved up.
    fn catch_up_with(&mut self, level: SlotTime, now: Timestamp) {
        self.used += level.saturating_sub(self.used(now));
    }

    /// It is not held back for more than about one turn, whatever it has used.
    fn forgive_debt(&mut self, level: SlotTime, now: Timestamp) {
        let most = level + self.weighted(self.last_turn.clamp(TURN, MAX_DEBT));
        self.used = self.used.saturating_sub(self.used(now).saturating_sub(most));
    }
}

#[cfg(test)]
mod tests;
