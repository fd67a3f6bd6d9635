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
    let shares = shares(&mut queue, 3000, |worker| if worker == "slow" { 20_000 } else { 4_000 });
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
fn paused_work_keeps_its_place_and_takes_no_turn() {
    let mut queue = FairQueue::new();
    for n in 1..=6 {
        queue.push(waiting(if n % 2 == 0 { "a" } else { "b" }, n, WorkKind::Fresh, 1), 1);
    }
    queue.sort_parked(|n| n % 2 == 0);
    queue.park(waiting("a", 8, WorkKind::Fresh, 1), 1);
    assert_eq!((queue.len(), queue.parked()), (7, 4));
    assert_eq!(queue.load(&name("a")), Load { solves: 4, bytes: 4 });
    for _ in 0..3 {
        let one = queue.pop(true).unwrap();
        assert_eq!(one.item % 2, 1, "only what is not paused");
        queue.settle(&one.lane, 1, 1);
    }
    assert!(queue.pop(true).is_none() && !queue.has_ready());
    assert_eq!(queue.position(SolveId::from_number(8)).unwrap().0, name("a"));
    assert_eq!(queue.remove_where(|n| *n == 4), [4]);
    queue.sort_parked(|_| false);
    let mut order = Vec::new();
    while let Some(one) = queue.pop(true) {
        order.push(one.item);
    }
    assert_eq!((order, queue.total_load()), (vec![2, 6, 8], Load::default()));
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
