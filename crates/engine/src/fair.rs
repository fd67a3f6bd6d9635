//! Who is next: deficit round robin over workers. A worker's share is of slot time, not of turns: a turn is charged with
//! what solves of the kind usually take and corrected when the task is over. Within a lane the oldest goes first; work
//! that somebody waits for goes before refills, and retries need leave (budget.rs). Dead letters that were brought back
//! share one lane: thousands of them hold up nobody who waits now, and are not starved either.

use std::collections::{BTreeMap, VecDeque};

use domain::{
    id::{SolveId, WorkerName},
    time::Timestamp,
};

/// What waits for a slot.
#[derive(Debug)]
pub(crate) struct Fair<T> {
    lanes: BTreeMap<LaneName, Lane<T>>,
    /// Lanes with something waiting, in the order of their turns.
    round: VecDeque<LaneName>,
}

/// Whose lane it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LaneName {
    /// A worker's.
    Worker(WorkerName),
    /// That of everything revived.
    Revived,
}

/// One that waits.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    /// Whose turn it takes.
    pub(crate) lane: LaneName,
    /// Its place in the lane.
    pub(crate) opened_at: Timestamp,
    /// Its name.
    pub(crate) solve: SolveId,
    /// What sort it is.
    pub(crate) sort: Sort,
    /// What its turn is charged with: milliseconds of a slot.
    pub(crate) charge: u64,
    /// The work itself.
    pub(crate) item: T,
}

/// What sort of work waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// The first submission of a solve.
    Fresh,
    /// A later one.
    Retry,
    /// Nobody waits for it.
    Refill,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: BTreeMap<Sort, BTreeMap<(Timestamp, SolveId), Waiting<T>>>,
    /// Milliseconds it may still use in this round; negative when it used more than its share.
    deficit: i64,
    priority: u32,
    /// Turns taken and not yet settled.
    out: usize,
}

/// No lane owes more slot time than this.
const MOST_DEBT: i64 = 60_000;
/// What a round gives each worker, times its priority.
const QUANTUM: i64 = 1000;

// === impl Fair ===

impl<T> Fair<T> {
    pub(crate) fn new() -> Self {
        Self { lanes: BTreeMap::new(), round: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, waiting: Waiting<T>, priority: u32) {
        let name = waiting.lane.clone();
        let lane = self.lanes.entry(name.clone()).or_insert_with(Lane::new);
        lane.priority = priority.max(1);
        if lane.is_empty() {
            self.round.push_back(name);
        }
        let key = (waiting.opened_at, waiting.solve);
        lane.waiting.entry(waiting.sort).or_default().insert(key, waiting);
    }

    /// Takes the next one: of those somebody waits for if there are any, retries only with leave.
    pub(crate) fn pop(&mut self, may_retry: bool) -> Option<Waiting<T>> {
        let live = self.lanes.values().any(|lane| lane.has_live(may_retry));
        let refill_turn = !live && self.lanes.values().any(|lane| lane.has(Sort::Refill));
        if !live && !refill_turn {
            return None;
        }
        loop {
            let name = self.round.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            let Some(sort) = lane.next(may_retry, refill_turn) else {
                self.round.push_back(name);
                continue;
            };
            let charge = lane.charge(sort);
            if lane.deficit < charge {
                lane.deficit += QUANTUM * i64::from(lane.priority);
                self.round.push_back(name);
                continue;
            }
            let next = lane.take(sort)?;
            lane.deficit -= charge;
            lane.out += 1;
            if lane.is_empty() {
                // What is not used is not saved up; what was overdrawn stays owed while tasks are out.
                lane.deficit = lane.deficit.min(0);
            } else {
                self.round.push_front(name);
            }
            return Some(next);
        }
    }

    /// A turn is over and took so long: the difference to its charge is settled.
    pub(crate) fn settle(&mut self, name: &LaneName, charge: u64, took: u64) {
        let alone = self.round.iter().all(|other| other == name);
        let Some(lane) = self.lanes.get_mut(name) else { return };
        lane.deficit += signed(charge) - signed(took);
        // What was used while nobody else waited is nobody's loss; and no debt starves a worker.
        let most_debt = if alone { 0 } else { MOST_DEBT };
        lane.deficit = lane.deficit.max(-most_debt);
        lane.out = lane.out.saturating_sub(1);
        if lane.is_empty() {
            lane.deficit = lane.deficit.min(0);
            if lane.out == 0 {
                self.lanes.remove(name);
            }
        }
    }

    /// Takes out everything that matches.
    pub(crate) fn remove_where(&mut self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for lane in self.lanes.values_mut() {
            for line in lane.waiting.values_mut() {
                let keys: Vec<_> = line
                    .iter()
                    .filter(|(_, one)| matches(&one.item))
                    .map(|(key, _)| *key)
                    .collect();
                removed.extend(keys.iter().filter_map(|key| line.remove(key)).map(|one| one.item));
            }
        }
        self.lanes.retain(|_, lane| !lane.is_empty() || lane.out > 0);
        let lanes = &self.lanes;
        self.round.retain(|name| lanes.get(name).is_some_and(|lane| !lane.is_empty()));
        removed
    }

    /// Whether it waits.
    pub(crate) fn has(&self, id: SolveId) -> bool {
        self.place(id).is_some()
    }

    /// In which lane it waits, and since when.
    pub(crate) fn place(&self, id: SolveId) -> Option<(LaneName, Timestamp)> {
        let within = |lane: &Lane<T>| {
            let mut keys = lane.waiting.values().flat_map(BTreeMap::keys);
            keys.find(|(_, waiting)| *waiting == id).map(|(since, _)| *since)
        };
        self.lanes.iter().find_map(|(name, lane)| Some((name.clone(), within(lane)?)))
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lanes.values().map(Lane::len).sum()
    }

    /// Whether a worker has retries waiting and nothing else does: time alone helps them.
    pub(crate) fn has_only_retries(&self) -> bool {
        let others = |lane: &Lane<T>| lane.has(Sort::Fresh) || lane.has(Sort::Refill);
        !self.round.is_empty() && !self.lanes.values().any(others)
    }

    /// How many in the lane go before one that was opened then; and its share of the slots, in thousandths.
    pub(crate) fn ahead(&self, name: &LaneName, opened_at: Timestamp) -> (usize, u64) {
        let before = (opened_at, SolveId::from_number(0));
        let lane = self.lanes.get(name);
        let ahead = lane.map_or(0, |lane| {
            let live = lane.waiting.iter().filter(|(sort, _)| **sort != Sort::Refill);
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
        Self { waiting: BTreeMap::new(), deficit: 0, priority: 1, out: 0 }
    }

    fn len(&self) -> usize {
        self.waiting.values().map(BTreeMap::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.waiting.values().all(BTreeMap::is_empty)
    }

    fn has(&self, sort: Sort) -> bool {
        self.waiting.get(&sort).is_some_and(|line| !line.is_empty())
    }

    fn has_live(&self, may_retry: bool) -> bool {
        self.has(Sort::Fresh) || (may_retry && self.has(Sort::Retry))
    }

    /// The oldest that may go.
    fn next(&self, may_retry: bool, refill_turn: bool) -> Option<Sort> {
        let first = |sort| self.waiting.get(&sort)?.first_key_value().map(|(key, _)| *key);
        match (first(Sort::Fresh), first(Sort::Retry).filter(|_| may_retry)) {
            (Some(fresh), Some(retry)) if retry < fresh => Some(Sort::Retry),
            (Some(_), _) => Some(Sort::Fresh),
            (None, Some(_)) => Some(Sort::Retry),
            (None, None) => (refill_turn && self.has(Sort::Refill)).then_some(Sort::Refill),
        }
    }

    fn charge(&self, sort: Sort) -> i64 {
        let first = self.waiting.get(&sort).and_then(BTreeMap::first_key_value);
        first.map_or(0, |(_, one)| signed(one.charge))
    }

    fn take(&mut self, sort: Sort) -> Option<Waiting<T>> {
        self.waiting.get_mut(&sort)?.pop_first().map(|(_, one)| one)
    }
}

/// No solve takes longer than the provider keeps its result: a turn is charged with ten minutes at most.
fn signed(millis: u64) -> i64 {
    i64::try_from(millis.min(600_000)).unwrap_or(600_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(worker: &str) -> LaneName {
        LaneName::Worker(WorkerName::new(worker).unwrap())
    }

    fn shown(name: &LaneName) -> String {
        match name {
            LaneName::Worker(worker) => worker.to_string(),
            LaneName::Revived => "(revived)".into(),
        }
    }

    fn waiting(worker: &str, n: u64, sort: Sort, charge: u64) -> Waiting<u64> {
        Waiting {
            lane: name(worker),
            opened_at: Timestamp::from_millis(n),
            solve: SolveId::from_number(n),
            sort,
            charge,
            item: n,
        }
    }

    /// Takes `turns` turns and counts the slot time of each worker; `took` is what a worker's turns really take.
    fn shares(
        fair: &mut Fair<u64>,
        turns: usize,
        took: impl Fn(&str) -> u64,
    ) -> BTreeMap<String, u64> {
        let mut shares = BTreeMap::new();
        for _ in 0..turns {
            let Some(one) = fair.pop(true) else { break };
            let name = shown(&one.lane);
            let took = took(&name);
            *shares.entry(name).or_default() += took;
            fair.settle(&one.lane, one.charge, took);
        }
        shares
    }

    #[test]
    fn one_that_sends_ninety_percent_gets_its_share_and_no_more() {
        let mut fair = Fair::new();
        for n in 0..450 {
            fair.push(waiting("greedy", n, Sort::Fresh, 15_000), 1);
        }
        for (n, worker) in (1000..1050).zip(["a", "b", "c"].into_iter().cycle()) {
            fair.push(waiting(worker, n, Sort::Fresh, 15_000), 1);
        }
        let shares = shares(&mut fair, 60, |_| 15_000);
        for (worker, share) in &shares {
            assert!((200_000..=250_000).contains(share), "{worker}: {shares:?}");
        }
    }

    #[test]
    fn a_share_is_of_slot_time_and_follows_the_priority() {
        let mut fair = Fair::new();
        for n in 0..4000 {
            fair.push(waiting("slow", n, Sort::Fresh, 5_000), 1);
            fair.push(waiting("quick", n, Sort::Fresh, 5_000), 1);
            fair.push(waiting("first", n, Sort::Fresh, 5_000), 3);
        }
        let shares =
            shares(&mut fair, 3000, |worker| if worker == "slow" { 20_000 } else { 4_000 });
        let percent = |a: &str, b: &str| shares[a] * 100 / shares[b];
        assert!((95..105).contains(&percent("slow", "quick")), "{shares:?}");
        assert!((285..315).contains(&percent("first", "quick")), "{shares:?}");
    }

    #[test]
    fn a_workers_own_go_oldest_first_and_refills_last() {
        let mut fair = Fair::new();
        fair.push(waiting("a", 1, Sort::Refill, 1), 1);
        fair.push(waiting("a", 3, Sort::Fresh, 1), 1);
        fair.push(waiting("b", 4, Sort::Retry, 1), 1);
        fair.push(waiting("a", 2, Sort::Retry, 1), 1);
        let mut order = Vec::new();
        while let Some(one) = fair.pop(true) {
            order.push(one.item);
        }
        assert_eq!(order.last(), Some(&1), "{order:?}");
        let place = |n| order.iter().position(|one| *one == n);
        assert!(place(2) < place(3), "{order:?}");
    }

    #[test]
    fn retries_wait_for_leave_and_block_nobody() {
        let mut fair = Fair::new();
        fair.push(waiting("a", 1, Sort::Retry, 1), 1);
        assert!(fair.has_only_retries());
        assert!(fair.pop(false).is_none());
        fair.push(waiting("a", 2, Sort::Fresh, 1), 1);
        fair.push(waiting("b", 3, Sort::Refill, 1), 1);
        assert_eq!(fair.pop(false).unwrap().item, 2);
        assert_eq!(fair.pop(false).unwrap().item, 3, "a refill waits for live work that can go");
        assert_eq!(fair.pop(true).unwrap().item, 1);
        assert_eq!(fair.len(), 0);
    }

    #[test]
    fn thousands_of_revived_letters_are_one_lane_among_others() {
        let mut fair = Fair::new();
        for n in 0..3000 {
            let revived = waiting("a", n, Sort::Fresh, 1000);
            fair.push(Waiting { lane: LaneName::Revived, ..revived }, 1);
        }
        for n in 3000..3100 {
            fair.push(waiting("a", n, Sort::Fresh, 1000), 1);
        }
        let shares = shares(&mut fair, 100, |_| 1000);
        assert!((49_000..=51_000).contains(&shares["a"]), "{shares:?}");
    }

    #[test]
    fn what_was_used_while_alone_is_not_owed() {
        let mut fair = Fair::new();
        for n in 0..5 {
            fair.push(waiting("a", n, Sort::Fresh, 8_000), 1);
        }
        let long = shares(&mut fair, 5, |_| 600_000);
        assert_eq!(long["a"], 5 * 600_000);
        for n in 10..50 {
            fair.push(waiting("a", n, Sort::Fresh, 8_000), 1);
            fair.push(waiting("b", n, Sort::Fresh, 8_000), 1);
        }
        let shares = shares(&mut fair, 20, |_| 8_000);
        assert!(shares["a"] >= 64_000, "{shares:?}");
    }

    #[test]
    fn a_worker_that_was_away_has_saved_nothing_up() {
        let mut fair = Fair::new();
        for n in 0..100 {
            fair.push(waiting("steady", n, Sort::Fresh, 1000), 1);
        }
        fair.push(waiting("guest", 0, Sort::Fresh, 1000), 1);
        shares(&mut fair, 50, |_| 1000);
        for n in 0..100 {
            fair.push(waiting("guest", n, Sort::Fresh, 1000), 1);
        }
        let shares = shares(&mut fair, 20, |_| 1000);
        assert!((9000..=11_000).contains(&shares["guest"]), "{shares:?}");
    }

    #[test]
    fn what_is_taken_out_is_gone_and_nobody_stands_in_its_place() {
        let mut fair = Fair::new();
        for n in 0..10 {
            fair.push(waiting(if n % 2 == 0 { "a" } else { "b" }, n, Sort::Fresh, 1), 1);
        }
        let mut removed = fair.remove_where(|n| n % 2 == 0);
        removed.sort_unstable();
        assert_eq!((removed, fair.len()), (vec![0, 2, 4, 6, 8], 5));
        assert_eq!(fair.ahead(&name("b"), Timestamp::from_millis(6)), (3, 1000));
        while fair.pop(true).is_some() {}
        assert_eq!(fair.len(), 0);
    }
}
