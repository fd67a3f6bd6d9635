//! The audit trail: every entry is in a hash chain, and what admins do is written together with the change.

use std::time::Duration;

use domain::{
    actor::Actor,
    admin_action::AdminAction,
    chain::{EntryHash, LedgerItem, Link, Verifier},
    claim::Claim,
    ledger::{Entry, Event},
    pool::{Expectation, Level, StandingOrder},
    ports::{AuditFilter, Note},
};

use super::archive::other;
use crate::{
    World, verify_chain,
    world::{admin, worker},
};

async fn links(world: &World) -> Vec<Link> {
    let items = world.records.chain(0, usize::MAX).await.unwrap();
    items
        .into_iter()
        .map(|item| match item {
            LedgerItem::Entry(chained) => chained.link.unwrap(),
            LedgerItem::Unreadable { seq, why } => panic!("{seq}: {why}"),
        })
        .collect()
}

async fn trail(world: &World) -> Vec<Entry> {
    world.records.audit(AuditFilter::all(100)).await.unwrap().items
}

/// The actions in the order in which they were done.
async fn actions(world: &World) -> Vec<(Actor, AdminAction)> {
    let mut found = Vec::new();
    for entry in trail(world).await.into_iter().rev() {
        if let Event::Administered { by, action } = entry.event {
            found.push((by, action));
        }
    }
    found
}

fn report(claim: &Claim, by: Option<Actor>) -> Note {
    Note {
        claim: Some(claim.id),
        worker: claim.worker.clone(),
        project: claim.project.clone(),
        kind: Some(claim.kind.clone()),
        event: Event::Reported { good: true },
        by,
    }
}

pub(super) async fn every_entry_is_chained_to_the_one_before(world: World) {
    world.serve(world.turnstile("a"), "t1").await;
    world.fail(world.turnstile("b"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    let links = links(&world).await;
    assert!(links.len() > 6);
    assert_eq!(links[0].prev, EntryHash::START);
    for (before, after) in links.iter().zip(&links[1..]) {
        assert_eq!(after.prev, before.hash);
    }
    for (entry, link) in world.entries().await.iter().zip(&links) {
        assert_eq!(EntryHash::of(link.prev, entry), link.hash);
    }
}

pub(super) async fn a_chain_goes_on_when_its_beginning_is_dropped(world: World) {
    world.serve(world.turnstile("a"), "t1").await;
    let head = verify_chain(&*world.records).await.unwrap().head;
    world.pass_days(91);
    world.sweep().await;
    world.open(world.turnstile("b")).await;
    world.sweep().await;
    let verified = verify_chain(&*world.records).await.unwrap();
    assert!(verified.first.unwrap() > 1, "the beginning was kept");
    assert_eq!(verified.unhashed, 0);
    assert!(verified.anchor.is_some_and(|anchor| anchor != EntryHash::START));
    assert_ne!(verified.head, head);
}

pub(super) async fn an_archive_has_the_hashes_of_its_store(world: World) {
    let (source, archive) = (other(), &world.archive);
    source.serve(source.turnstile("a"), "t1").await;
    source.copy_to_archive(archive.as_ref(), 3).await;
    source.serve(source.turnstile("b"), "t2").await;
    source.copy_to_archive(archive.as_ref(), 3).await;
    let (here, there) =
        (verify_chain(&*source.records).await, verify_chain(archive.as_ref()).await);
    assert_eq!(there, here);
}

pub(super) async fn a_chain_is_read_in_pieces(world: World) {
    world.serve(world.turnstile("a"), "t1").await;
    let whole = verify_chain(&*world.records).await.unwrap();
    let (mut verifier, mut from) = (Verifier::default(), 0);
    loop {
        let piece = world.records.chain(from, 2).await.unwrap();
        let Some(LedgerItem::Entry(last)) = piece.last() else { break };
        assert!(u64::try_from(piece.len()).unwrap() < whole.entries, "not all at once");
        from = last.entry.seq + 1;
        for item in &piece {
            verifier.check(item).unwrap();
        }
    }
    assert_eq!(verifier.report(), whole);
}

pub(super) async fn what_an_admin_does_is_written_with_the_change(world: World) {
    let store = &world.store;
    let waiting = world.open(world.turnstile("a")).await;
    store.withdraw(waiting.id, Some(admin()), world.now()).await.unwrap();
    let served = world.serve(world.turnstile("b"), "t1").await;
    store.note(report(&served, Some(admin())), world.now()).await.unwrap();
    let revived = world.fail(world.turnstile("c"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    let next = world.reopen(&revived).await;
    let purged = world.fail(world.turnstile("d"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    store.purge(purged.solve.unwrap(), admin(), world.now()).await.unwrap();
    let (pool, order) = order(&world);
    let set = store.set_pool(pool, Some(order), Some(admin()), world.now()).await.unwrap().unwrap();
    let (id, at) = (set.id(), world.now().plus(Duration::from_secs(60)));
    let expectation = Expectation { left: 4, at };
    store.expect(pool, expectation, Some(admin()), world.now()).await.unwrap();
    store.set_pool(pool, None, Some(admin()), world.now()).await.unwrap();
    let reload = AdminAction::Reloaded { changes: Vec::new(), more: 0 };
    store.administer(admin(), reload.clone(), world.now()).await.unwrap();
    let done: Vec<AdminAction> = vec![
        AdminAction::Withdrawn,
        AdminAction::Reported { good: true },
        AdminAction::Revived { claim: next.id },
        AdminAction::Purged,
        AdminAction::PoolSet { pool: id, level: Level::Fixed(2), most: 5, waste: 100 },
        AdminAction::Expected { pool: id, count: 4, at },
        AdminAction::PoolClosed { pool: id },
        reload,
    ];
    let found = actions(&world).await;
    assert!(found.iter().all(|(by, _)| *by == admin()), "{found:?}");
    assert_eq!(found.into_iter().map(|(_, action)| action).collect::<Vec<_>>(), done);
    let all = world.entries().await;
    let withdrawn = all.iter().find(|entry| entry.event.audited_as() == Some("withdrawn")).unwrap();
    assert_eq!((withdrawn.claim, &withdrawn.worker), (Some(waiting.id), &waiting.worker));
}

fn order(world: &World) -> (domain::fingerprint::Fingerprint, StandingOrder) {
    let new = world.turnstile("pooled");
    let order = StandingOrder {
        challenge: new.challenge,
        worker: worker("pool"),
        project: new.project,
        basis: "own shop".into(),
        level: Level::Fixed(2),
        most: 5,
        waste: 100,
        is_declared: false,
    };
    (new.fingerprint, order)
}

pub(super) async fn what_a_worker_does_is_not_an_admins_action(world: World) {
    let waiting = world.open(world.turnstile("a")).await;
    world.withdraw(&waiting).await;
    let served = world.serve(world.turnstile("b"), "t1").await;
    world.store.note(report(&served, None), world.now()).await.unwrap();
    let (pool, declared) = order(&world);
    world.store.set_pool(pool, Some(declared), None, world.now()).await.unwrap();
    assert_eq!(trail(&world).await, []);
}

pub(super) async fn an_action_that_changes_nothing_leaves_no_entry(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let (pool, order) = order(&world);
    for _ in 0..2 {
        world.store.withdraw(claim.id, Some(admin()), world.now()).await.unwrap();
        let set = world.store.set_pool(pool, Some(order.clone()), Some(admin()), world.now());
        set.await.unwrap();
    }
    for _ in 0..2 {
        world.store.set_pool(pool, None, Some(admin()), world.now()).await.unwrap();
    }
    let names: Vec<_> =
        actions(&world).await.into_iter().map(|(_, action)| action.name()).collect();
    assert_eq!(names, ["withdrawn", "pool_set", "pool_closed"]);
}

pub(super) async fn the_audit_trail_is_filtered_and_paged(world: World) {
    let reload = || AdminAction::Reloaded { changes: Vec::new(), more: 0 };
    let start = world.now();
    for n in 0..7 {
        let by = Actor { name: worker(if n % 2 == 0 { "eve" } else { "odd" }), ..admin() };
        world.store.administer(by, reload(), world.now()).await.unwrap();
        world.open(world.turnstile(&format!("site-{n}"))).await;
        if n % 3 == 0 {
            world.pass(1);
        }
    }
    let refused = Event::Refusals {
        code: "ERROR_SITE_NOT_DECLARED".into(),
        address: None,
        pageurl: None,
        count: 3,
        since: world.now(),
    };
    let served = world.serve(world.turnstile("served"), "t1").await;
    let note = Note { claim: None, event: refused, ..report(&served, None) };
    world.store.note(note, world.now()).await.unwrap();
    let whole = trail(&world).await;
    assert_eq!(whole.len(), 8);
    assert!(whole.windows(2).all(|two| two[0].seq > two[1].seq), "newest first");
    let (mut pieces, mut from) = (Vec::new(), None);
    loop {
        let filter = AuditFilter { from, ..AuditFilter::all(3) };
        let page = world.records.audit(filter).await.unwrap();
        pieces.extend(page.items);
        let Some(next) = page.next else { break };
        from = Some(next);
    }
    assert_eq!(pieces, whole);
    let matching = async |filter: AuditFilter| world.records.audit(filter).await.unwrap().items;
    let all = || AuditFilter::all(100);
    let eves = matching(AuditFilter { actor: Some(worker("eve")), ..all() }).await;
    assert_eq!(eves.len(), 4);
    let refusals = matching(AuditFilter { action: Some("refused".into()), ..all() }).await;
    assert_eq!(refusals, whole[..1]);
    let early = matching(AuditFilter { until: Some(start), ..all() }).await;
    assert_eq!(early, whole[whole.len() - 1..]);
    let late = matching(AuditFilter { since: Some(start.plus(Duration::from_millis(1))), ..all() });
    assert_eq!(late.await, whole[..whole.len() - 1]);
}

pub(super) async fn a_deleted_entry_leaves_the_audit_trail(world: World) {
    let reload = AdminAction::Reloaded { changes: Vec::new(), more: 0 };
    world.store.administer(admin(), reload, world.now()).await.unwrap();
    world.open(world.turnstile("a")).await;
    assert_eq!(trail(&world).await.len(), 1);
    world.pass_days(91);
    world.sweep().await;
    world.open(world.turnstile("b")).await;
    world.sweep().await;
    assert_eq!(trail(&world).await, []);
}
