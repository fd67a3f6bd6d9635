//! The history of another store, and a store whose history is kept elsewhere.

use domain::{
    claim::{Admission, Claim, ClaimState},
    ledger::Event,
    ports::{
        Archive, ClaimFilter, DeadLetterFilter, History, Note, Records, Revival, Scope, SweepAsk,
        TotalsAsk,
    },
    time::Day,
};

use super::crowd::all_at_once;
use crate::world::{World, named, worker};

/// Another store, at the same noon.
fn other() -> World {
    World::new(&stores::open("memory:").unwrap())
}

fn all_claims(limit: usize) -> ClaimFilter {
    ClaimFilter::all(Scope::All, limit)
}

async fn history(records: &dyn Records) -> Vec<Claim> {
    records.history(all_claims(1000)).await.unwrap().items
}

/// Nobody's: it is about neither a claim nor a solve.
async fn refuse(world: &World) {
    let note = Note {
        claim: None,
        worker: worker("ann"),
        project: domain::id::Project::new("shop").unwrap(),
        kind: None,
        event: Event::Refused { code: "ERROR_PAGEURL".into(), pageurl: None },
    };
    world.store.note(note, world.now()).await.unwrap();
}

/// A served claim, a failed one, one taken back, and a refusal.
async fn live(world: &World) -> [Claim; 3] {
    let served = world.serve(world.turnstile("a"), "t1").await;
    world.fetch(&served).await;
    world.pass(1);
    let failed = world.fail(world.turnstile("b"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    world.pass(1);
    let withdrawn = world.open(world.turnstile("c")).await;
    world.withdraw(&withdrawn).await;
    refuse(world).await;
    [world.find(&served).await, failed, world.find(&withdrawn).await]
}

pub(super) async fn an_archive_tells_the_same_as_its_store(world: World) {
    let (source, archive) = (other(), world.archive.as_ref());
    let claims = live(&source).await;
    // Any size will do, also one that cuts decisions in half.
    source.tell_archive(archive, 3).await;
    assert_eq!(archive.entries(0, usize::MAX).await.unwrap(), source.entries().await);
    assert_eq!(history(archive).await, history(source.records.as_ref()).await);
    for claim in &claims {
        let (told, known) =
            (archive.explain(claim.id).await, source.records.explain(claim.id).await);
        assert_eq!(told.unwrap(), known.unwrap());
        assert_eq!(archive.archived_claim(claim.id).await.unwrap().as_ref(), Some(claim));
    }
    let letter = archive.dead_letter(claims[1].solve.unwrap()).await.unwrap();
    assert_eq!(letter, Some(source.letter(&claims[1]).await));
    let ask =
        TotalsAsk { scope: Scope::All, from: Day::from_number(0), to: Day::from_number(u32::MAX) };
    let told = archive.totals(ask.clone()).await.unwrap();
    assert_eq!(told, source.records.totals(ask).await.unwrap());
    // Nothing in an archive waits, is due or is under way.
    assert!(world.records.active(Scope::All, 9).await.unwrap().is_empty());
    world.pass_days(1);
    assert!(world.sweep().await.lapsed.is_empty());
}

pub(super) async fn a_lot_told_twice_changes_nothing(world: World) {
    let (source, archive) = (other(), world.archive.as_ref());
    live(&source).await;
    let first = source.records.lot(None, 4).await.unwrap();
    assert!(archive.archive(first.clone()).await.unwrap());
    assert!(!archive.archive(first.clone()).await.unwrap());
    let next = source.records.lot(first.entries.last().cloned(), 4).await.unwrap();
    assert!(archive.archive(next.clone()).await.unwrap());
    for old in [first, next] {
        assert!(!archive.archive(old).await.unwrap());
    }
    assert_eq!(archive.entries(0, usize::MAX).await.unwrap(), source.entries().await[..8]);
    source.tell_archive(archive, 500).await;
}

pub(super) async fn one_of_two_who_tell_the_same_is_heard(world: World) {
    let source = other();
    live(&source).await;
    let lot = source.records.lot(None, 500).await.unwrap();
    let told = all_at_once(8, |_| {
        let (archive, lot) = (world.archive.clone(), lot.clone());
        async move { archive.archive(lot).await.unwrap() }
    })
    .await;
    let heard = told.into_iter().filter(|heard| *heard).count();
    assert_eq!(heard, 1);
    assert_eq!(world.entries().await, source.entries().await);
}

pub(super) async fn a_store_that_lost_writes_is_told_from_the_beginning(world: World) {
    let archive = world.archive.as_ref();
    let before = other();
    live(&before).await;
    // This one is lost.
    before.pass(1);
    refuse(&before).await;
    before.tell_archive(archive, 500).await;
    // The same store, without them, goes on with numbers that are used already.
    let after = other();
    live(&after).await;
    after.pass(60);
    refuse(&after).await;
    let fresh = after.serve(after.turnstile("new"), "t2").await;
    assert!(after.records.lot(archive.archived().await.unwrap(), 9).await.unwrap().is_anew);
    after.tell_archive(archive, 4).await;
    assert_eq!(archive.archived().await.unwrap(), after.entries().await.last().cloned());

    let told = archive.entries(0, usize::MAX).await.unwrap();
    let mut expected = before.entries().await;
    expected.extend(after.entries().await.into_iter().filter(|entry| entry.at == after.now()));
    assert_eq!(told.len(), expected.len());
    assert!(told.iter().zip(&expected).all(|(told, entry)| told.says_the_same(entry)));
    let story = archive.explain(fresh.id).await.unwrap();
    assert_eq!(story.len(), after.records.explain(fresh.id).await.unwrap().len());
    // From here on it goes on as ever.
    after.pass(1);
    live_on(&after, archive).await;
}

async fn live_on(source: &World, archive: &dyn Archive) {
    let count = archive.entries(0, usize::MAX).await.unwrap().len();
    refuse(source).await;
    source.tell_archive(archive, 500).await;
    assert_eq!(archive.entries(0, usize::MAX).await.unwrap().len(), count + 1);
}

pub(super) async fn a_claim_told_as_it_was_does_not_go_back(world: World) {
    let archive = world.archive.as_ref();
    let before = other();
    let claim = before.serve(before.turnstile("a"), "t1").await;
    before.fetch(&claim).await;
    before.tell_archive(archive, 500).await;
    let after = other();
    let waiting = after.open(after.turnstile("a")).await;
    assert_eq!(waiting.id, claim.id);
    after.tell_archive(archive, 500).await;
    let known = archive.archived_claim(claim.id).await.unwrap().unwrap();
    assert_eq!(known.state, ClaimState::Served);
    assert!(known.delivered_at.is_some());
}

pub(super) async fn a_purged_letter_leaves_the_archive(world: World) {
    let (source, archive) = (other(), world.archive.as_ref());
    let failed = source.fail(source.turnstile("a"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    source.tell_archive(archive, 500).await;
    let open = || archive.dead_letters(DeadLetterFilter::open(Scope::All, 9));
    assert_eq!(open().await.unwrap().items, [source.letter(&failed).await]);
    source.store.purge(failed.solve.unwrap(), worker("admin"), source.now()).await.unwrap();
    source.tell_archive(archive, 500).await;
    assert!(open().await.unwrap().items.is_empty());
    assert!(archive.dead_letter(failed.solve.unwrap()).await.unwrap().is_none());
}

pub(super) async fn an_archive_keeps_its_history_for_ninety_days(world: World) {
    let (source, archive) = (other(), world.archive.as_ref());
    let [served, ..] = live(&source).await;
    source.tell_archive(archive, 500).await;
    source.pass_days(89);
    archive.drop_old(1000, source.now()).await.unwrap();
    assert_eq!(history(archive).await.len(), 3);
    source.pass_days(2);
    archive.drop_old(1000, source.now()).await.unwrap();
    assert!(history(archive).await.is_empty());
    assert!(archive.explain(served.id).await.unwrap().is_empty());
    // Where it stands it does not forget, nor the number.
    source.open(source.turnstile("d")).await;
    source.tell_archive(archive, 500).await;
    assert_eq!(history(archive).await.len(), 1);
    assert_eq!(archive.entries(0, 99).await.unwrap().last(), source.entries().await.last());
}

// === a store whose history is kept elsewhere ===

pub(super) async fn what_is_archived_is_dropped_a_day_after_its_end(world: World) {
    let archive = other().archive;
    let keyed = |world: &World| {
        let mut new = world.turnstile("a");
        new.key = named(&new, "k");
        new
    };
    let served = world.serve(keyed(&world), "t1").await;
    world.fetch(&served).await;
    world.tell_archive(archive.as_ref(), 500).await;
    world.pass(24 * 3600 - 1);
    // The challenge goes first, what it belonged to after it.
    world.sweep_archived(archive.as_ref()).await;
    assert!(matches!(world.admit(keyed(&world)).await, Admission::Replayed(_)), "kept for a day");
    world.pass(1);
    refuse(&world).await;
    world.tell_archive(archive.as_ref(), 500).await;
    world.pass(2 * 3600);
    world.sweep_archived(archive.as_ref()).await;
    assert!(world.store.find_claim(served.id).await.unwrap().is_none());
    assert!(world.store.find_solve(served.solve.unwrap()).await.unwrap().is_none());
    assert!(history(world.records.as_ref()).await.is_empty());
    assert!(matches!(world.admit(keyed(&world)).await, Admission::Opened(_)), "a fresh claim");
    let told = archive.explain(served.id).await.unwrap();
    assert!(told.iter().any(|entry| matches!(entry.event, Event::Delivered { .. })), "{told:?}");
    world.pass_days(1);
    world.sweep_archived(archive.as_ref()).await;
    let left = world.entries().await;
    let last = archive.archived().await.unwrap().unwrap();
    assert_eq!(left.first(), Some(&last), "the last that was archived proves that it was");
    assert!(left.len() > 1, "what came after it was not archived");
    world.tell_archive(archive.as_ref(), 500).await;
    let all = archive.entries(0, usize::MAX).await.unwrap();
    assert_eq!(all.last(), left.last(), "and nothing was missed");
    assert!(all.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq));
}

pub(super) async fn what_is_not_archived_stays(world: World) {
    let archive = other().archive;
    live(&world).await;
    let all = world.entries().await.len();
    world.pass_days(100);
    for _ in 0..3 {
        world.sweep_archived(archive.as_ref()).await;
        world.pass(7200);
    }
    assert_eq!(
        (world.entries().await.len(), history(world.records.as_ref()).await.len()),
        (all, 3)
    );
    // Told of the first entries, it lets those go, and none of the claims that have more to tell.
    let lot = world.records.lot(None, 3).await.unwrap();
    archive.archive(lot).await.unwrap();
    world.sweep_archived(archive.as_ref()).await;
    assert_eq!(history(world.records.as_ref()).await.len(), 3);
    world.tell_archive(archive.as_ref(), 500).await;
    assert_eq!(archive.entries(0, usize::MAX).await.unwrap().len(), all);
    world.sweep_archived(archive.as_ref()).await;
    assert!(history(world.records.as_ref()).await.is_empty());
}

pub(super) async fn an_archive_of_another_ledger_lets_nothing_go(world: World) {
    let (stranger, archive) = (other(), other().archive);
    live(&world).await;
    live(&stranger).await;
    stranger.pass(5);
    refuse(&stranger).await;
    stranger.tell_archive(archive.as_ref(), 500).await;
    let all = world.entries().await;
    // The number is there, and means something else.
    world.pass(5);
    world.open(world.turnstile("d")).await;
    world.pass_days(3);
    world.sweep_archived(archive.as_ref()).await;
    assert_eq!(world.entries().await[..all.len()], all);
    assert_eq!(history(world.records.as_ref()).await.len(), 4);
}

pub(super) async fn a_dead_letter_keeps_its_claims(world: World) {
    let archive = other().archive;
    let failed = world.fail(world.turnstile("a"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    let other = world.fail(world.turnstile("b"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    world.tell_archive(archive.as_ref(), 500).await;
    world.pass_days(3);
    world.sweep_archived(archive.as_ref()).await;
    assert!(history(world.records.as_ref()).await.is_empty(), "the archive lists them");
    let back = world.bring_back(&failed).await;
    assert!(matches!(back, Revival::Back(Admission::Opened(_))), "{back:?}");
    world.tell_archive(archive.as_ref(), 500).await;
    world.pass_days(31);
    for _ in 0..3 {
        world.pass(7200);
        world.sweep_archived(archive.as_ref()).await;
        world.tell_archive(archive.as_ref(), 500).await;
    }
    for claim in [&failed, &other] {
        assert!(world.store.find_claim(claim.id).await.unwrap().is_none());
        assert!(world.store.find_solve(claim.solve.unwrap()).await.unwrap().is_none());
    }
}

pub(super) async fn a_store_without_its_archive_keeps_its_own_history_again(world: World) {
    let archive = other().archive;
    let served = world.serve(world.turnstile("a"), "t1").await;
    world.fetch(&served).await;
    world.tell_archive(archive.as_ref(), 500).await;
    world.pass(2 * 3600);
    world.sweep_archived(archive.as_ref()).await;
    // The ledger is not kept elsewhere any more.
    world.pass_days(30);
    let ask = || SweepAsk { history: History::Here, ..SweepAsk::plain(1000) };
    world.store.sweep(ask(), world.now()).await.unwrap();
    assert!(world.store.find_solve(served.solve.unwrap()).await.unwrap().is_some());
    assert_eq!(history(world.records.as_ref()).await.len(), 1);
    world.pass_days(62);
    world.store.sweep(ask(), world.now()).await.unwrap();
    assert!(world.store.find_solve(served.solve.unwrap()).await.unwrap().is_none());
}
