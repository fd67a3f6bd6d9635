//! Fair queue of solves that wait for a slot: deficit round robin over workers. Workers share slot time, not turns: a turn
//! is charged with the usual solve time of the kind and corrected when the task is over. Within a lane the oldest goes
//! first; work that somebody waits for goes before refills, and retries need the retry budget. Revived dead letters share
//! one lane, so that thousands of them neither delay live claims nor starve. Paused work is parked: it keeps its place and
//! counts as queued, but takes no turn.

use std::collections::{BTreeMap, VecDeque};

use domain::{
    id::{SolveId, WorkerName},
    solve::{Origin, Solve},
    time::Timestamp,
};

use super::queue_room::Load;

#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    lanes: BTreeMap<LaneName, Lane<T>>,
    /// Lanes that are not empty, in the order of their turns.
    round: VecDeque<LaneName>,
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
    /// The charge for its turn, in milliseconds of a slot.
    pub(crate) charge: u64,
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
    /// Milliseconds it may still use in this round; negative when it has overdrawn.
    deficit: i64,
    priority: u32,
    /// Turns taken and not yet settled.
    out: usize,
}

/// A lane never owes more slot time than this.
const MAX_DEBT: i64 = 60_000;
/// Milliseconds that each round gives a worker, times its priority.
const QUANTUM: i64 = 1000;

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
        Self { lanes: BTreeMap::new(), round: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, waiting: QueuedSolve<T>, priority: u32) {
        let name = waiting.lane.clone();
        let lane = self.lane(&waiting, priority);
        let had_none = lane.has_none_ready();
        lane.insert(waiting);
        if had_none {
            self.round.push_back(name);
        }
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
    pub(crate) fn sort_parked(&mut self, is_paused: impl Fn(&T) -> bool) {
        for lane in self.lanes.values_mut() {
            lane.sort_parked(&is_paused);
        }
        let lanes = &self.lanes;
        let is_ready = |name: &LaneName| lanes.get(name).is_some_and(|lane| !lane.has_none_ready());
        self.round.retain(is_ready);
        let missing: Vec<_> = lanes
            .keys()
            .filter(|name| is_ready(name) && !self.round.contains(name))
            .cloned()
            .collect();
        self.round.extend(missing);
    }

    /// Takes the next one: live work before refills, retries only if the budget allows one.
    pub(crate) fn pop(&mut self, may_retry: bool) -> Option<QueuedSolve<T>> {
        let live = self.lanes.values().any(|lane| lane.has_live(may_retry));
        let refill_turn = !live && self.lanes.values().any(|lane| lane.has(WorkKind::Refill));
        if !live && !refill_turn {
            return None;
        }
        loop {
            let name = self.round.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            let Some(kind) = lane.next(may_retry, refill_turn) else {
                self.round.push_back(name);
                continue;
            };
            let charge = lane.charge(kind);
            if lane.deficit < charge {
                lane.deficit += QUANTUM * i64::from(lane.priority);
                self.round.push_back(name);
                continue;
            }
            let next = lane.take(kind)?;
            lane.deficit -= charge;
            lane.out += 1;
            if lane.has_none_ready() {
                // Unused time is not saved up; overdrawn time stays owed while tasks are out.
                lane.deficit = lane.deficit.min(0);
            } else {
                self.round.push_front(name);
            }
            return Some(next);
        }
    }

    /// A turn is over: settles the difference between its charge and the time it took.
    pub(crate) fn settle(&mut self, name: &LaneName, charge: u64, took: u64) {
        let alone = self.round.iter().all(|other| other == name);
        let Some(lane) = self.lanes.get_mut(name) else { return };
        lane.deficit += signed(charge) - signed(took);
        // Time used while nobody else waited cost nobody anything, and no debt may starve a worker.
        let max_debt = if alone { 0 } else { MAX_DEBT };
        lane.deficit = lane.deficit.max(-max_debt);
        lane.out = lane.out.saturating_sub(1);
        if lane.has_none_ready() {
            lane.deficit = lane.deficit.min(0);
            if lane.is_unused() {
                self.lanes.remove(name);
            }
        }
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
        let lanes = &self.lanes;
        self.round.retain(|name| lanes.get(name).is_some_and(|lane| !lane.has_none_ready()));
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
        !self.round.is_empty()
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
        !self.round.is_empty() && !self.lanes.values().any(others)
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
        Self { waiting, parked, bytes: 0, deficit: 0, priority: 1, out: 0 }
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

    /// The kind of the oldest solve that may go.
    fn next(&self, may_retry: bool, refill_turn: bool) -> Option<WorkKind> {
        let first = |kind| self.waiting.get(&kind)?.first_key_value().map(|(key, _)| *key);
        match (first(WorkKind::Fresh), first(WorkKind::Retry).filter(|_| may_retry)) {
            (Some(fresh), Some(retry)) if retry < fresh => Some(WorkKind::Retry),
            (Some(_), _) => Some(WorkKind::Fresh),
            (None, Some(_)) => Some(WorkKind::Retry),
            (None, None) => (refill_turn && self.has(WorkKind::Refill)).then_some(WorkKind::Refill),
        }
    }

    fn charge(&self, kind: WorkKind) -> i64 {
        let first = self.waiting.get(&kind).and_then(BTreeMap::first_key_value);
        first.map_or(0, |(_, one)| signed(one.charge))
    }

    fn take(&mut self, kind: WorkKind) -> Option<QueuedSolve<T>> {
        let (_, one) = self.waiting.get_mut(&kind)?.pop_first()?;
        self.bytes -= one.bytes;
        Some(one)
    }
}

/// The provider keeps a result for ten minutes, so no turn is charged with more.
fn signed(millis: u64) -> i64 {
    i64::try_from(millis.min(600_000)).unwrap_or(600_000)
}

#[cfg(test)]
mod tests;
