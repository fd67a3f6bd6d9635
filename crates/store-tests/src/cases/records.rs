//! Queries.

use domain::{
    budget::{Amount, BudgetScope},
    challenge::Kind,
    claim::{Admission, Claim, ClaimState},
    id::{Project, WorkerName},
    ledger::Event,
    ports::{ClaimFilter, DaySpending, DeadLetterFilter, Note, Scope, TotalsFilter},
    solve::Stage,
};

use crate::{PRICE, World};

fn everything() -> ClaimFilter {
    ClaimFilter::all(Scope::All, 100)
}

fn of(worker: &str) -> Scope {
    Scope::Worker(WorkerName::new(worker).unwrap())
}

async fn open_as(world: &World, worker: &str, sitekey: &str) -> Claim {
    let mut new = world.turnstile(sitekey);
    new.worker = WorkerName::new(worker).unwrap();
    new.project = Project::new(format!("{worker}s")).unwrap();
    world.open(new).await
}

pub(super) async fn history_is_paged_newest_first(world: World) {
    let mut expected = Vec::new();
    for n in 0..7 {
        expected.push(world.open(world.turnstile("a")).await);
        // Several claims may arrive in the same millisecond.
        if n % 2 == 0 {
            world.pass(1);
        }
    }
    expected.sort_by_key(|claim| std::cmp::Reverse((claim.opened_at, claim.id)));
    let mut filter = ClaimFilter { limit: 3, ..everything() };
    let mut seen = Vec::new();
    for expected in [3, 3, 1] {
        let page = world.records.history(filter.clone()).await.unwrap();
        assert_eq!((page.items.len(), page.next.is_none()), (expected, expected == 1));
        seen.extend(page.items);
        filter.from = page.next;
    }
    assert_eq!(seen, expected);
    let all = world.records.history(ClaimFilter { limit: 7, ..everything() }).await.unwrap();
    assert_eq!((all.items, all.next), (expected, None));
}

pub(super) async fn history_is_filtered(world: World) {
    let one = open_as(&world, "ann", "a").await;
    world.pass(1);
    let two = open_as(&world, "ann", "b").await;
    world.pass(1);
    let three = open_as(&world, "bob", "a").await;
    world.withdraw(&two).await;
    let two = world.find(&two).await;
    let site = ClaimFilter { sitekey: Some("a".into()), ..everything() };
    let state = ClaimFilter { state: Some(ClaimState::Withdrawn), ..everything() };
    let kind = ClaimFilter { kind: Some(Kind::Image), ..everything() };
    let project = ClaimFilter { project: Some(Project::new("anns").unwrap()), ..everything() };
    let both = ClaimFilter { scope: of("bob"), ..site.clone() };
    let since = ClaimFilter { since: Some(three.opened_at), ..everything() };
    let until = ClaimFilter { until: Some(one.opened_at), ..everything() };
    let never =
        ClaimFilter { since: Some(three.opened_at), until: Some(one.opened_at), ..everything() };
    let own_since = ClaimFilter { since: Some(three.opened_at), ..site.clone() };
    let code = ClaimFilter { code: Some("ERROR_X".into()), ..everything() };
    for (filter, expected) in [
        (site, vec![&three, &one]),
        (state, vec![&two]),
        (kind, vec![]),
        (project, vec![&two, &one]),
        (both, vec![&three]),
        (since, vec![&three]),
        (until, vec![&one]),
        (never, vec![]),
        (own_since, vec![&three]),
        (code, vec![]),
    ] {
        let found = world.records.history(filter.clone()).await.unwrap().items;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

pub(super) async fn a_worker_sees_its_own(world: World) {
    let own = open_as(&world, "ann", "a").await;
    open_as(&world, "bob", "a").await;
    let filter = ClaimFilter { scope: of("ann"), ..everything() };
    assert_eq!(world.records.history(filter).await.unwrap().items, std::slice::from_ref(&own));
    let active = world.records.active(of("ann"), 9).await.unwrap();
    assert_eq!((active.len(), active[0].claims.clone()), (1, vec![own.id]));
    let day = world.now().day();
    let ask = TotalsFilter { scope: of("ann"), from: day, to: day };
    assert_eq!(world.records.totals(ask).await.unwrap().len(), 1);
    let prefix_of_a_name = ClaimFilter { scope: of("an"), ..everything() };
    assert!(world.records.history(prefix_of_a_name).await.unwrap().items.is_empty());
}

pub(super) async fn a_worker_sees_no_claims_of_others_that_share_its_solve(world: World) {
    let own = world.open(world.image(b"a picture")).await;
    let mut joining = world.image(b"a picture");
    joining.worker = WorkerName::new("bob").unwrap();
    let Admission::Joined(other) = world.admit(joining).await else { panic!("not joined") };
    let claims = async |scope| world.records.active(scope, 9).await.unwrap()[0].claims.clone();
    assert_eq!(claims(of("ann")).await, [own.id]);
    assert_eq!(claims(Scope::All).await, [own.id, other.id]);
    world.fail_solve(&own, "ERROR_PAGEURL").await;
    let letters = async |scope| {
        let filter = DeadLetterFilter { closed: true, ..DeadLetterFilter::open(scope, 9) };
        world.records.dead_letters(filter).await.unwrap().items[0].claims.clone()
    };
    assert_eq!(letters(of("ann")).await, [own.id]);
    assert_eq!(letters(Scope::All).await, [own.id, other.id]);
}

pub(super) async fn an_opened_solve_leaves_the_names_of_its_parameters(world: World) {
    world.open(world.image(b"a picture")).await;
    let carried = Event::Carried { params: vec!["body".into()], targets: Vec::new() };
    let entries = world.entries().await;
    assert_eq!((entries.len(), &entries[1].event), (2, &carried));
    assert_eq!((entries[1].claim, entries[1].at), (entries[0].claim, entries[0].at));
    world.open(world.turnstile("a")).await;
    assert_eq!(world.entries().await.len(), 3, "nothing but page and site key");
}

pub(super) async fn active_lists_what_is_under_way(world: World) {
    let done = world.serve(world.turnstile("a"), "t1").await;
    let sent = world.open(world.turnstile("a")).await;
    world.submit(&sent, "t2").await;
    world.pass(1);
    let queued = world.open(world.turnstile("a")).await;
    let active = world.records.active(Scope::All, 9).await.unwrap();
    let seen: Vec<_> = active.iter().map(|solve| (Some(solve.id), solve.stage)).collect();
    assert_eq!(seen, [(queued.solve, Stage::Queued), (sent.solve, Stage::Submitted)]);
    assert!(active.iter().all(|solve| Some(solve.id) != done.solve));
    assert_eq!(world.records.active(Scope::All, 1).await.unwrap().len(), 1);
}

pub(super) async fn totals_are_by_day_and_worker(world: World) {
    let today = world.now().day();
    open_as(&world, "ann", "a").await;
    let claim = world.open(world.turnstile("b")).await;
    world.submit(&claim, "t1").await;
    world.pass(17);
    world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    world.withdraw(&claim).await;
    let mut collected = world.turnstile("b");
    collected.collect = true;
    world.admit(collected).await;
    world.pass_days(1);
    open_as(&world, "bob", "a").await;
    let ask = |from, to| TotalsFilter { scope: Scope::All, from, to };
    let days = world.records.totals(ask(today, today)).await.unwrap();
    assert_eq!(days.len(), 2);
    let counts = days.iter().find(|total| total.project.as_str() == "shop").unwrap().counts;
    assert_eq!((counts.claims, counts.opened, counts.stocked), (2, 1, 1));
    assert_eq!((counts.attempts, counts.solved, counts.withdrawn), (1, 1, 1));
    assert_eq!((counts.polls, counts.solve_ms), (3, 17_000));
    assert_eq!((counts.cost, counts.saved, counts.savings()), (PRICE, PRICE, 1));
    assert_eq!(world.records.totals(ask(today, world.now().day())).await.unwrap().len(), 3);
}

pub(super) async fn a_worker_gets_its_own_totals_of_every_day(world: World) {
    let first = world.now().day();
    // Names that are neighbours in the order of the rows.
    let names = ["ann", "an", "ann.b", "ann-b", "anna", "Ann"];
    for day in 0..3 {
        for (n, name) in names.iter().enumerate() {
            for claim in 0..=n {
                open_as(&world, name, &format!("{day}-{claim}")).await;
            }
        }
        world.pass_days(1);
    }
    let last = world.now().day();
    for (n, name) in names.iter().enumerate() {
        let ask = TotalsFilter { scope: of(name), from: first, to: last };
        let totals = world.records.totals(ask).await.unwrap();
        let seen: Vec<_> = totals.iter().map(|total| total.counts.opened).collect();
        let own = u64::try_from(n + 1).unwrap();
        assert_eq!(seen, [own; 3], "{name}: {totals:?}");
        assert!(totals.iter().all(|total| total.worker.as_str() == *name), "{totals:?}");
        assert!(totals.is_sorted_by_key(|total| total.day));
    }
    let all = TotalsFilter { scope: Scope::All, from: first, to: last };
    assert_eq!(world.records.totals(all).await.unwrap().len(), 3 * names.len());
}

pub(super) async fn dead_letters_are_listed_and_found(world: World) {
    let mut ids = Vec::new();
    for _ in 0..4 {
        let claim = world.open(world.turnstile("a")).await;
        world.pass(120);
        world.sweep().await;
        ids.insert(0, claim.solve.unwrap());
    }
    let open = DeadLetterFilter::open(of("ann"), 3);
    let mut filter = DeadLetterFilter { kind: Some(Kind::Turnstile), ..open };
    let first = world.records.dead_letters(filter.clone()).await.unwrap();
    filter.from = first.next;
    let second = world.records.dead_letters(filter.clone()).await.unwrap();
    let seen: Vec<_> =
        first.items.iter().chain(&second.items).map(|dead_letter| dead_letter.id).collect();
    assert_eq!((seen, second.next), (ids, None));
    filter = DeadLetterFilter { from: None, code: Some("OTHER".into()), ..filter };
    assert!(world.records.dead_letters(filter.clone()).await.unwrap().items.is_empty());
    filter = DeadLetterFilter { code: None, scope: of("bob"), ..filter };
    assert!(world.records.dead_letters(filter).await.unwrap().items.is_empty());
}

pub(super) async fn a_claim_is_explained_in_order(world: World) {
    world.open(world.turnstile("x")).await;
    let claim = world.serve(world.turnstile("a"), "t1").await;
    world.fetch(&claim).await;
    let story = world.records.explain(claim.id).await.unwrap();
    let names: Vec<&str> = story
        .iter()
        .map(|entry| match &entry.event {
            Event::Opened { .. } => "opened",
            Event::Intent { .. } => "intent",
            Event::Accepted { .. } => "accepted",
            Event::Ready { .. } => "ready",
            Event::Allotted { .. } => "allotted",
            Event::Delivered { .. } => "delivered",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["opened", "intent", "accepted", "ready", "allotted", "delivered"]);
    assert!(story.is_sorted_by_key(|entry| entry.seq));
    // A claim served from stock is explained by the solve that paid.
    world.stock(world.turnstile("b"), "t2").await;
    world.admit(world.turnstile("b")).await;
    let newest = world.records.history(ClaimFilter { limit: 1, ..everything() }).await.unwrap();
    let story = world.records.explain(newest.items[0].id).await.unwrap();
    assert!(story.iter().any(|entry| matches!(entry.event, Event::Ready { .. })));
}

pub(super) async fn an_explanation_does_not_mention_other_joined_claims(world: World) {
    let first = world.open(world.image(b"a picture")).await;
    let mut new = world.image(b"a picture");
    new.worker = WorkerName::new("bob").unwrap();
    world.admit(new.clone()).await;
    world.submit(&first, "t1").await;
    world.settle(first.solve.unwrap(), 1, world.solved("t1")).await;
    let story = world.records.explain(new.id).await.unwrap();
    assert!(story.iter().any(|entry| matches!(entry.event, Event::Ready { .. })));
    assert!(story.iter().all(|entry| entry.claim.is_none_or(|claim| claim == new.id)));
    assert_eq!(story.iter().filter(|entry| entry.claim == Some(new.id)).count(), 2);
}

pub(super) async fn the_ledger_is_read_in_pieces(world: World) {
    for name in ["t1", "t2", "t3"] {
        let claim = world.serve(world.turnstile("a"), name).await;
        world.fetch(&claim).await;
    }
    let all = world.entries().await;
    for size in [1, 2, 5] {
        let mut seen = Vec::new();
        loop {
            let from = seen.len() as u64 + 1;
            let piece = world.records.entries(from, size).await.unwrap();
            if piece.is_empty() {
                break;
            }
            assert!(piece.len() <= size);
            seen.extend(piece);
        }
        assert_eq!(seen, all);
    }
}

pub(super) async fn notes_are_entries(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    let note = Note {
        claim: Some(claim.id),
        worker: claim.worker.clone(),
        project: claim.project.clone(),
        kind: Some(claim.kind.clone()),
        event: Event::Reported { good: true },
        by: None,
    };
    world.store.note(note.clone(), world.now()).await.unwrap();
    let story = world.records.explain(claim.id).await.unwrap();
    assert_eq!(story.last().unwrap().event, Event::Reported { good: true });
    assert_eq!(story.last().unwrap().solve, claim.solve);
    let event = Event::Refused { code: "ERROR_SITE_NOT_DECLARED".into(), pageurl: None };
    world.store.note(Note { claim: None, event, ..note }, world.now()).await.unwrap();
    let day = world.now().day();
    let ask = TotalsFilter { scope: Scope::All, from: day, to: day };
    assert_eq!(world.records.totals(ask).await.unwrap()[0].counts.refused, 1);
}

pub(super) async fn spending_is_by_day_and_worker(world: World) {
    let today = world.now().day();
    open_as(&world, "ann", "a").await;
    open_as(&world, "ann", "b").await;
    open_as(&world, "bob", "c").await;
    let ambiguous = open_as(&world, "bob", "d").await;
    let lease = world.lose_reply(&ambiguous).await;
    world.authorise(&lease).await.unwrap();
    let spent = world.records.spending(today).await.unwrap();
    let scope = |name: &str| BudgetScope::Worker(WorkerName::new(name).unwrap());
    let used = |spent: &DaySpending, name: &str| spent.books[&scope(name)].day(spent.day).used();
    let two = Amount { solves: 2, cost: PRICE + PRICE };
    // The attempt that was authorised is one more.
    let three = Amount { solves: 3, cost: PRICE + PRICE + PRICE };
    assert_eq!((used(&spent, "ann"), used(&spent, "bob"), spent.authorised), (two, three, 1));
    world.pass_days(1);
    let next = world.records.spending(world.now().day()).await.unwrap();
    assert_eq!((used(&next, "ann"), next.authorised), (Amount::default(), 0));
    assert_eq!(next.books[&scope("ann")].month.used(), two);
}
