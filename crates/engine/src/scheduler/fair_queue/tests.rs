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

fn waiting(worker: &str, n: u64, kind: WorkKind) -> QueuedSolve<u64> {
    QueuedSolve {
        lane: name(worker),
        opened_at: Timestamp::from_millis(n),
        solve: SolveId::from_number(n),
        kind,
        bytes: 1,
        item: n,
    }
}

/// A queue, and a provider with some slots that works on what the queue hands out.
struct World {
    queue: FairQueue<u64>,
    slots: usize,
    now: u64,
    /// The tasks under way by the time they end, each with its lane and its start.
    tasks: BTreeMap<(u64, u64), (LaneName, u64)>,
    pushed: u64,
    started: u64,
}

type Shares = BTreeMap<String, u64>;

impl World {
    fn new(slots: usize) -> Self {
        let (queue, tasks) = (FairQueue::new(), BTreeMap::new());
        Self { queue, slots, now: 1_000_000, tasks, pushed: 0, started: 0 }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn push(&mut self, worker: &str, count: u64, kind: WorkKind, priority: u32) {
        for _ in 0..count {
            self.pushed += 1;
            self.queue.push(waiting(worker, self.pushed, kind), priority, self.now());
        }
    }

    fn pop(&mut self, may_retry: bool) -> Option<u64> {
        self.queue.pop(may_retry, self.now()).map(|one| one.item)
    }

    /// Fills the slots and passes some time; less, when nothing is left to do. Returns the slot time of each worker.
    /// `took` is how long a worker's turns take.
    fn work(&mut self, millis: u64, took: impl Fn(&str) -> u64) -> Shares {
        let (from, until) = (self.now, self.now + millis);
        let mut shares = Shares::new();
        let mut add = |lane: &LaneName, since: u64, end: u64| {
            *shares.entry(label(lane)).or_default() += end - since.max(from);
        };
        loop {
            while self.tasks.len() < self.slots
                && let Some(one) = self.queue.pop(true, self.now())
            {
                self.started += 1;
                let end = self.now + took(&label(&one.lane));
                self.tasks.insert((end, self.started), (one.lane, self.now));
            }
            let next = self.tasks.first_key_value().map(|((end, _), _)| *end);
            let Some(end) = next.filter(|end| *end <= until) else { break };
            self.now = end;
            let (_, (lane, since)) = self.tasks.pop_first().expect("it was just looked at");
            add(&lane, since, end);
            self.queue.settle(&lane, Timestamp::from_millis(since), self.now());
        }
        self.now = until;
        for (lane, since) in self.tasks.values() {
            add(lane, *since, until);
        }
        shares
    }
}

fn percent(shares: &Shares, of: &str) -> u64 {
    shares[of] * 100 / shares.values().sum::<u64>()
}

#[test]
fn a_worker_that_sends_ninety_percent_gets_no_more_than_its_share() {
    for slots in [1, 3, 8] {
        let mut world = World::new(slots);
        world.push("greedy", 900, WorkKind::Fresh, 1);
        for worker in ["a", "b", "c"] {
            world.push(worker, 200, WorkKind::Fresh, 1);
        }
        let shares = world.work(900_000, |_| 15_000);
        for worker in shares.keys() {
            assert!((24..=26).contains(&percent(&shares, worker)), "{slots}: {shares:?}");
        }
    }
}

#[test]
fn a_share_is_of_slot_time_and_follows_the_priority() {
    for slots in [1, 2, 5, 20] {
        let mut world = World::new(slots);
        world.push("slow", 8000, WorkKind::Fresh, 1);
        world.push("quick", 8000, WorkKind::Fresh, 1);
        world.push("first", 8000, WorkKind::Fresh, 3);
        let shares = world.work(1_800_000, |worker| if worker == "slow" { 20_000 } else { 4_000 });
        assert!((19..=21).contains(&percent(&shares, "slow")), "{slots}: {shares:?}");
        assert!((19..=21).contains(&percent(&shares, "quick")), "{slots}: {shares:?}");
        assert!((59..=61).contains(&percent(&shares, "first")), "{slots}: {shares:?}");
    }
}

#[test]
fn a_worker_that_arrives_late_gets_its_share_at_once() {
    for (slots, took) in [(1, 600), (5, 600), (5, 2_000), (20, 2_000), (2, 50)] {
        let mut world = World::new(slots);
        world.push("early", 4000, WorkKind::Fresh, 1);
        world.work(1_100, |_| took);
        world.push("late", 2000, WorkKind::Fresh, 1);
        // Tasks that are under way go on.
        world.work(took, |_| took);
        let shares = world.work(10_000, |_| took);
        assert!((45..=55).contains(&percent(&shares, "late")), "{slots}, {took}: {shares:?}");
    }
}

#[test]
fn a_late_worker_is_not_disadvantaged_by_how_long_the_others_turns_take() {
    let mut world = World::new(5);
    world.push("early", 1000, WorkKind::Fresh, 1);
    world.work(300_000, |_| 60_000);
    world.push("late", 1000, WorkKind::Fresh, 1);
    // Tasks that are under way go on, and their time counts: as much as one turn of it.
    world.work(60_000, |_| 500);
    let shares = world.work(60_000, |_| 500);
    assert!((50..=70).contains(&percent(&shares, "late")), "{shares:?}");
    let shares = world.work(60_000, |_| 500);
    assert!((49..=51).contains(&percent(&shares, "late")), "{shares:?}");
}

#[test]
fn one_that_cannot_go_saves_nothing_up_and_spoils_no_share() {
    let mut world = World::new(2);
    world.push("pools", 2000, WorkKind::Refill, 1);
    world.push("slow", 2000, WorkKind::Fresh, 1);
    world.push("quick", 2000, WorkKind::Fresh, 1);
    let took = |worker: &str| if worker == "slow" { 10_000 } else { 1_000 };
    let shares = world.work(1_000_000, took);
    assert!(!shares.contains_key("pools") && (48..=52).contains(&percent(&shares, "slow")));
    world.push("pools", 500, WorkKind::Fresh, 1);
    let shares = world.work(60_000, took);
    assert!((28..=38).contains(&percent(&shares, "pools")), "{shares:?}");
}

#[test]
fn a_workers_own_go_oldest_first_and_refills_last() {
    let mut world = World::new(1);
    world.push("a", 1, WorkKind::Refill, 1);
    world.push("a", 1, WorkKind::Retry, 1);
    world.push("a", 1, WorkKind::Fresh, 1);
    world.push("b", 1, WorkKind::Retry, 1);
    let mut order = Vec::new();
    while let Some(item) = world.pop(true) {
        order.push(item);
    }
    assert_eq!(order, [2, 4, 3, 1]);
}

#[test]
fn retries_wait_for_the_budget_and_block_nobody() {
    let mut world = World::new(1);
    world.push("a", 1, WorkKind::Retry, 1);
    assert!(world.queue.has_only_retries());
    assert!(world.pop(false).is_none());
    world.push("a", 1, WorkKind::Fresh, 1);
    world.push("b", 1, WorkKind::Refill, 1);
    assert_eq!(world.pop(false), Some(2));
    assert_eq!(world.pop(false), Some(3), "a refill waits for live work that can go");
    assert_eq!(world.pop(true), Some(1));
    assert_eq!(world.queue.len(), 0);
}

#[test]
fn thousands_of_revived_dead_letters_are_one_lane_among_others() {
    let mut world = World::new(1);
    for n in 0..3000 {
        let revived = waiting("a", n, WorkKind::Fresh);
        let now = world.now();
        world.queue.push(QueuedSolve { lane: LaneName::Revived, ..revived }, 1, now);
    }
    world.pushed = 3000;
    world.push("a", 100, WorkKind::Fresh, 1);
    let shares = world.work(100_000, |_| 1000);
    assert!((49_000..=51_000).contains(&shares["a"]), "{shares:?}");
}

#[test]
fn slot_time_used_while_alone_is_not_owed() {
    let mut world = World::new(1);
    world.push("a", 5, WorkKind::Fresh, 1);
    let alone = world.work(3_000_000, |_| 600_000);
    assert_eq!(alone["a"], 5 * 600_000);
    world.push("a", 40, WorkKind::Fresh, 1);
    world.push("b", 40, WorkKind::Fresh, 1);
    let shares = world.work(160_000, |_| 8_000);
    assert!((72_000..=88_000).contains(&shares["a"]), "{shares:?}");
}

#[test]
fn one_endless_turn_holds_a_worker_back_for_a_minute_at_most() {
    let mut world = World::new(1);
    world.push("a", 5, WorkKind::Fresh, 1);
    world.push("b", 500, WorkKind::Fresh, 1);
    world.work(601_000, |worker| if worker == "a" { 600_000 } else { 1_000 });
    let shares = world.work(100_000, |_| 1_000);
    assert!(shares["a"] > 0, "{shares:?}");
}

#[test]
fn a_worker_that_was_away_has_saved_nothing_up() {
    let mut world = World::new(1);
    world.push("steady", 200, WorkKind::Fresh, 1);
    world.push("guest", 1, WorkKind::Fresh, 1);
    world.work(50_000, |_| 1000);
    world.push("guest", 100, WorkKind::Fresh, 1);
    let shares = world.work(20_000, |_| 1000);
    assert!((9000..=11_000).contains(&shares["guest"]), "{shares:?}");
}

#[test]
fn paused_work_keeps_its_place_and_takes_no_turn() {
    let mut world = World::new(1);
    for _ in 0..3 {
        world.push("b", 1, WorkKind::Fresh, 1);
        world.push("a", 1, WorkKind::Fresh, 1);
    }
    let now = world.now();
    world.queue.sort_parked(now, |n| n % 2 == 0);
    world.queue.park(waiting("a", 8, WorkKind::Fresh), 1);
    assert_eq!((world.queue.len(), world.queue.parked()), (7, 4));
    assert_eq!(world.queue.load(&name("a")), Load { solves: 4, bytes: 4 });
    let shares = world.work(10_000, |_| 1000);
    assert_eq!(shares, Shares::from([("b".into(), 3000)]), "only what is not paused");
    assert!(world.pop(true).is_none() && !world.queue.has_ready());
    assert_eq!(world.queue.position(SolveId::from_number(8)).unwrap().0, name("a"));
    assert_eq!(world.queue.remove_where(|n| *n == 4), [4]);
    world.queue.sort_parked(now, |_| false);
    let order: Vec<_> = std::iter::from_fn(|| world.pop(true)).collect();
    assert_eq!((order, world.queue.total_load()), (vec![2, 6, 8], Load::default()));
}

#[test]
fn removed_solves_leave_no_gap_in_their_lane() {
    let mut world = World::new(1);
    for n in 0..10 {
        let now = world.now();
        let one = waiting(if n % 2 == 0 { "a" } else { "b" }, n, WorkKind::Fresh);
        world.queue.push(one, 1, now);
    }
    let mut removed = world.queue.remove_where(|n| n % 2 == 0);
    removed.sort_unstable();
    assert_eq!((removed, world.queue.len()), (vec![0, 2, 4, 6, 8], 5));
    assert_eq!(world.queue.load(&name("b")), Load { solves: 5, bytes: 5 });
    assert_eq!(world.queue.total_load(), Load { solves: 5, bytes: 5 });
    assert_eq!(world.queue.ahead(&name("b"), Timestamp::from_millis(6)), (3, 1000));
    while world.pop(true).is_some() {}
    assert_eq!(world.queue.total_load(), Load::default());
}

#[test]
fn a_new_claim_has_all_of_its_lane_before_it_except_refills_and_paused_work() {
    let mut world = World::new(1);
    for kind in [WorkKind::Fresh, WorkKind::Retry, WorkKind::Refill] {
        world.push("a", 3, kind, 1);
        world.push("b", 1, kind, 1);
    }
    world.queue.park(waiting("a", 90, WorkKind::Fresh), 1);
    assert_eq!(world.queue.ahead_of_next(&name("a")), 6);
    assert_eq!(world.queue.ahead_of_next(&name("nobody")), 0);
    assert_eq!(world.queue.ahead(&name("a"), world.now()).0, 6, "they agree");
    world.pop(true).expect("something waits");
    world.pop(true).expect("something waits");
    let (a, b) = (name("a"), name("b"));
    assert_eq!(world.queue.ahead_of_next(&a) + world.queue.ahead_of_next(&b), 6);
}

/// Three workers that each now and then have one claim, which finds a free slot.
fn take_turns(take: impl Fn(&mut FairQueue<u64>, &str, u64, Timestamp)) -> Vec<String> {
    let mut queue = FairQueue::new();
    let mut under_way: Vec<(&str, Timestamp)> = Vec::new();
    let mut seen = Vec::new();
    for n in 1..200_u64 {
        let now = Timestamp::from_millis(1_000_000 + n * 137);
        let worker = ["a", "b", "c"][usize::try_from(n * n % 7 % 3).unwrap()];
        if n % 5 < 3 {
            take(&mut queue, worker, n, now);
            under_way.push((worker, now));
        } else if !under_way.is_empty() {
            let (worker, since) = under_way.remove(usize::try_from(n).unwrap() % under_way.len());
            queue.settle(&name(worker), since, now);
        }
        seen.push(format!("{queue:?}"));
    }
    seen
}

#[test]
fn a_turn_without_waiting_counts_like_one_that_was_waited_for() {
    let waited_for = take_turns(|queue, worker, n, now| {
        queue.push(waiting(worker, n, WorkKind::Fresh), 1, now);
        assert_eq!(queue.pop(true, now).map(|one| one.item), Some(n));
    });
    let at_once = take_turns(|queue, worker, _, now| queue.take_turn(&name(worker), 1, now));
    // A lane remembers, empty, for which kinds it had work.
    let lanes = |seen: Vec<String>| -> Vec<String> {
        seen.into_iter().map(|one| one.replace("Fresh: {}", "")).collect()
    };
    assert_eq!(lanes(waited_for), lanes(at_once));
}

#[test]
fn a_turn_that_came_to_nothing_leaves_no_trace() {
    let mut queue: FairQueue<u64> = FairQueue::new();
    let at = |seconds: u64| Timestamp::from_millis(1_000_000 + seconds * 1000);
    queue.take_turn(&name("a"), 1, at(0));
    queue.take_turn(&name("b"), 1, at(1));
    queue.settle(&name("b"), at(1), at(2));
    let before = format!("{:?}", queue.lanes);
    for second in 3..6 {
        queue.take_turn(&name("a"), 1, at(second));
        queue.cancel_turn(&name("a"), at(second));
    }
    assert_eq!(format!("{:?}", queue.lanes), before);
    queue.cancel_turn(&name("a"), at(0));
    assert!(queue.lanes.is_empty(), "{queue:?}");
}
