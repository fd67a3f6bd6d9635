//! Fair queue of solves that wait for a slot: deficit round robin over workers. Workers share slot time, not turns: a turn
//! is charged with the usual solve time of the kind and corrected when the task is over. Within a lane the oldest goes
//! first; work that somebody waits for goes before refills, and retries need the retry budget. Revived dead letters share
//! one lane, so that thousands of them neither delay live claims nor starve.

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

// === impl FairQueue ===

impl<T> FairQueue<T> {
    pub(crate) fn new() -> Self {
        Self { lanes: BTreeMap::new(), round: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, waiting: QueuedSolve<T>, priority: u32) {
        let name = waiting.lane.clone();
        let lane = self.lanes.entry(name.clone()).or_insert_with(Lane::new);
        lane.priority = priority.max(1);
        if lane.is_empty() {
            self.round.push_back(name);
        }
        lane.bytes += waiting.bytes;
        let key = (waiting.opened_at, waiting.solve);
        lane.waiting.entry(waiting.kind).or_default().insert(key, waiting);
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
            if lane.is_empty() {
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
        if lane.is_empty() {
            lane.deficit = lane.deficit.min(0);
            if lane.out == 0 {
                self.lanes.remove(name);
            }
        }
    }

    pub(crate) fn remove_where(&mut self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for lane in self.lanes.values_mut() {
            for line in lane.waiting.values_mut() {
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
        self.lanes.retain(|_, lane| !lane.is_empty() || lane.out > 0);
        let lanes = &self.lanes;
        self.round.retain(|name| lanes.get(name).is_some_and(|lane| !lane.is_empty()));
        removed
    }

    /// The lane it waits in, and since when.
    pub(crate) fn position(&self, id: SolveId) -> Option<(LaneName, Timestamp)> {
        let within = |lane: &Lane<T>| {
            let mut keys = lane.waiting.values().flat_map(BTreeMap::keys);
            keys.find(|(_, waiting)| *waiting == id).map(|(since, _)| *since)
        };
        self.lanes.iter().find_map(|(name, lane)| Some((name.clone(), within(lane)?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.values().map(Lane::len).sum()
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
        let busy = self.lanes.iter().filter(|(other, lane)| *other != name && !lane.is_empty());
        let all: u64 = own + busy.map(|(_, lane)| u64::from(lane.priority)).sum::<u64>();
        (ahead, own * 1000 / all)
    }
}

// === impl Lane ===

impl<T> Lane<T> {
    fn new() -> Self {
        Self { waiting: BTreeMap::new(), bytes: 0, deficit: 0, priority: 1, out: 0 }
    }

    fn load(&self) -> Load {
        Load { solves: self.len(), bytes: self.bytes }
    }

    fn len(&self) -> usize {
        self.waiting.values().map(BTreeMap::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.waiting.values().all(BTreeMap::is_empty)
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
mod tests {
    use super::*;

    fn name(worker: &str) -> LaneName {
        LaneName::Worker(WorkerName::new(worker).unwrap())
    }

    fn label(name: &LaneName) -> String {
        match name {
            LaneName::Worker(worker) => worker.to_string(),
            LaneName::Revived => "(revived)".into(),
        }
    }

    fn waiting(worker: &str, n: u64, kind: WorkKind, charge: u64) -> QueuedSolve<u64> {
        QueuedSolve {
            lane: name(worker),
            opened_at: Timestamp::from_millis(n),
            solve: SolveId::from_number(n),
            kind,
            charge,
            bytes: 1,
            item: n,
        }
    }

    /// Takes `turns` turns and counts the slot time of each worker; `took` is what a worker's turns really take.
    fn shares(
        queue: &mut FairQueue<u64>,
        turns: usize,
        took: impl Fn(&str) -> u64,
    ) -> BTreeMap<String, u64> {
        let mut shares = BTreeMap::new();
        for _ in 0..turns {
            let Some(one) = queue.pop(true) else { break };
            let name = label(&one.lane);
            let took = took(&name);
            *shares.entry(name).or_default() += took;
            queue.settle(&one.lane, one.charge, took);
        }
        shares
    }

    #[test]
    fn a_worker_that_sends_ninety_percent_gets_no_more_than_its_share() {
        let mut queue = FairQueue::new();
        for n in 0..450 {
            queue.push(waiting("greedy", n, WorkKind::Fresh, 15_000), 1);
        }
        for (n, worker) in (1000..1050).zip(["a", "b", "c"].into_iter().cycle()) {
            queue.push(waiting(worker, n, WorkKind::Fresh, 15_000), 1);
        }
        let shares = shares(&mut queue, 60, |_| 15_000);
        for (worker, share) in &shares {
            assert!((200_000..=250_000).contains(share), "{worker}: {shares:?}");
        }
    }

    #[test]
    fn a_share_is_of_slot_time_and_follows_the_priority() {
        let mut queue = FairQueue::new();
        for n in 0..4000 {
            queue.push(waiting("slow", n, WorkKind::Fresh, 5_000), 1);
            queue.push(waiting("quick", n, WorkKind::Fresh, 5_000), 1);
            queue.push(waiting("first", n, WorkKind::Fresh, 5_000), 3);
        }
        let shares =
            shares(&mut queue, 3000, |worker| if worker == "slow" { 20_000 } else { 4_000 });
        let percent = |a: &str, b: &str| shares[a] * 100 / shares[b];
        assert!((95..105).contains(&percent("slow", "quick")), "{shares:?}");
        assert!((285..315).contains(&percent("first", "quick")), "{shares:?}");
    }

    #[test]
    fn a_workers_own_go_oldest_first_and_refills_last() {
        let mut queue = FairQueue::new();
        queue.push(waiting("a", 1, WorkKind::Refill, 1), 1);
        queue.push(waiting("a", 3, WorkKind::Fresh, 1), 1);
        queue.push(waiting("b", 4, WorkKind::Retry, 1), 1);
        queue.push(waiting("a", 2, WorkKind::Retry, 1), 1);
        let mut order = Vec::new();
        while let Some(one) = queue.pop(true) {
            order.push(one.item);
        }
        assert_eq!(order.last(), Some(&1), "{order:?}");
        let place = |n| order.iter().position(|one| *one == n);
        assert!(place(2) < place(3), "{order:?}");
    }

    #[test]
    fn retries_wait_for_the_budget_and_block_nobody() {
        let mut queue = FairQueue::new();
        queue.push(waiting("a", 1, WorkKind::Retry, 1), 1);
        assert!(queue.has_only_retries());
        assert!(queue.pop(false).is_none());
        queue.push(waiting("a", 2, WorkKind::Fresh, 1), 1);
        queue.push(waiting("b", 3, WorkKind::Refill, 1), 1);
        assert_eq!(queue.pop(false).unwrap().item, 2);
        assert_eq!(queue.pop(false).unwrap().item, 3, "a refill waits for live work that can go");
        assert_eq!(queue.pop(true).unwrap().item, 1);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn thousands_of_revived_dead_letters_are_one_lane_among_others() {
        let mut queue = FairQueue::new();
        for n in 0..3000 {
            let revived = waiting("a", n, WorkKind::Fresh, 1000);
            queue.push(QueuedSolve { lane: LaneName::Revived, ..revived }, 1);
        }
        for n in 3000..3100 {
            queue.push(waiting("a", n, WorkKind::Fresh, 1000), 1);
        }
        let shares = shares(&mut queue, 100, |_| 1000);
        assert!((49_000..=51_000).contains(&shares["a"]), "{shares:?}");
    }

    #[test]
    fn slot_time_used_while_alone_is_not_owed() {
        let mut queue = FairQueue::new();
        for n in 0..5 {
            queue.push(waiting("a", n, WorkKind::Fresh, 8_000), 1);
        }
        let long = shares(&mut queue, 5, |_| 600_000);
        assert_eq!(long["a"], 5 * 600_000);
        for n in 10..50 {
            queue.push(waiting("a", n, WorkKind::Fresh, 8_000), 1);
            queue.push(waiting("b", n, WorkKind::Fresh, 8_000), 1);
        }
        let shares = shares(&mut queue, 20, |_| 8_000);
        assert!(shares["a"] >= 64_000, "{shares:?}");
    }

    #[test]
    fn a_worker_that_was_away_has_saved_nothing_up() {
        let mut queue = FairQueue::new();
        for n in 0..100 {
            queue.push(waiting("steady", n, WorkKind::Fresh, 1000), 1);
        }
        queue.push(waiting("guest", 0, WorkKind::Fresh, 1000), 1);
        shares(&mut queue, 50, |_| 1000);
        for n in 0..100 {
            queue.push(waiting("guest", n, WorkKind::Fresh, 1000), 1);
        }
        let shares = shares(&mut queue, 20, |_| 1000);
        assert!((9000..=11_000).contains(&shares["guest"]), "{shares:?}");
    }

    #[test]
    fn removed_solves_leave_no_gap_in_their_lane() {
        let mut queue = FairQueue::new();
        for n in 0..10 {
            queue.push(waiting(if n % 2 == 0 { "a" } else { "b" }, n, WorkKind::Fresh, 1), 1);
        }
        let mut removed = queue.remove_where(|n| n % 2 == 0);
        removed.sort_unstable();
        assert_eq!((removed, queue.len()), (vec![0, 2, 4, 6, 8], 5));
        assert_eq!(queue.load(&name("b")), Load { solves: 5, bytes: 5 });
        assert_eq!(queue.total_load(), Load { solves: 5, bytes: 5 });
        assert_eq!(queue.ahead(&name("b"), Timestamp::from_millis(6)), (3, 1000));
        while queue.pop(true).is_some() {}
        assert_eq!(queue.total_load(), Load::default());
    }
}
