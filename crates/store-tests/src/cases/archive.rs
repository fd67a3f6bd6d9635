//! An archive holds the history of another store, and that store drops what is archived.

use domain::{
    claim::{Admission, Claim, ClaimState},
    ledger::Event,
    ports::{
        Archive, ClaimFilter, DeadLetterFilter, History, Note, Records, Revival, Scope,
        SweepRequest, TotalsFilter,
    },
    time::Day,
};

use super::concurrency::all_at_once;
use crate::world::{World, admin, named, worker};

/// Another store, whose clock also starts at noon.
pub(super) fn other() -> World {
    World::new(&stores::open("memory:").unwrap())
}

fn all_claims(limit: usize) -> ClaimFilter {
    ClaimFilter::all(Scope::All, limit)
}

async fn history(records: &dyn Records) -> Vec<Claim> {
    records.history(all_claims(1000)).await.unwrap().items
}

/// An entry about neither a claim nor a solve.
async fn refuse(world: &World) {
    let note = Note {
        claim: None,
        worker: worker("ann"),
        project: domain::id::Project::new("shop").unwrap(),
        kind: None,
        event: Event::Refused { code: "ERROR_PAGEURL".into(), pageurl: None },
        by: None,
    };
    world.store.note(note, world.now()).await.unwrap();
}

/// A served claim, a failed one, a withdrawn one, and a refusal.
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

pub(super) async fn an_archive_has_the_same_history_as_its_store(world: World) {
    let (source, archive) = (other(), world.archive.as_ref());
    live(&source).await;
    // An archive gets no token's text, so the store drops it first.
    source.pass(1000);
    source.sweep().await;
    let claims = history(source.records.as_ref()).await;
    // Batches of any size work, also one that splits the entries of a decision.
    source.copy_to_archive(archive, 3).await;
    assert_eq!(archive.entries(0, usize::MAX).await.unwrap(), source.entries().await);
    assert_eq!(history(archive).await, history(source.records.as_ref()).await);
    for claim in &claims {
        let (archived, known) =
            (archive.explain(claim.id).await, source.records.explain(claim.id).await);
        assert_eq!(archived.unwrap(), known.unwrap());
        assert_eq!(archive.archived_claim(claim.id).await.unwrap().as_ref(), Some(claim));
    }
    let dead_letter = archive.dead_letter(claims[1].solve.unwrap()).await.unwrap();
    assert_eq!(dead_letter, Some(source.dead_letter(&claims[1]).await));
    let ask = TotalsFilter {
        scope: Scope::All,
        from: Day::from_number(0),
        to: Day::from_number(u32::MAX),
    };
    let totals = archive.totals(ask.clone()).await.unwrap();
    assert_eq!(totals, source.records.totals(ask).await.unwrap());
    // An archive has no waiting claims, due callbacks or active solves.
    assert!(world.records.active(Scope::All, 9).await.unwrap().is_empty());
    world.pass_days(1);
    assert!(world.sweep().await.lapsed.is_empty());
}

pub(super) async fn an_archive_batch_written_twice_changes_nothing(world: World) {
    let (source, archive) = (other(), world.archive.as_ref());
    live(&source).await;
    let first = source.records.archive_batch(None, 4).await.unwrap();
    assert!(archive.archive(first.clone()).await.unwrap());
    assert!(!archive.archive(first.clone()).await.unwrap());
    let next = source.records.archive_batch(first.entries.last().cloned(), 4).await.unwrap();
    assert!(archive.archive(next.clone()).await.unwrap());
    for old in [first, next] {
        assert!(!archive.archive(old).await.unwrap());
    }
    assert_eq!(archive.entries(0, usize::MAX).await.unwrap(), source.entries().await[..8]);
    source.copy_to_archive(archive, 500).await;
}

pub(super) async fn one_of_two_concurrent_archive_writes_succeeds(world: World) {
    let source = other();
    live(&source).await;
    let lot = source.records.archive_batch(None, 500).await.unwrap();
    let accepted = all_at_once(8, |_| {
        let (archive, lot) = (world.archive.clone(), lot.clone());
        async move { archive.archive(lot).await.unwrap() }
    })
    .await;
    let accepted = accepted.into_iter().filter(|accepted| *accepted).count();
    assert_eq!(accepted, 1);
    assert_eq!(world.entries().await, source.entries().await);
}

pub(super) async fn a_store_that_lost_writes_is_archived_from_the_beginning(world: World) {
    let archive = world.archive.as_ref();
    let before = other();
    live(&before).await;
    // The store loses this one.
    before.pass(1);
    refuse(&before).await;
    before.copy_to_archive(archive, 500).await;
    // After the loss the store assigns sequence numbers that the archive already has.
    let after = other();
    live(&after).await;
    after.pass(60);
    refuse(&after).await;
    let fresh = after.serve(after.turnstile("new"), "t2").await;
    assert!(
        after.records.archive_batch(archive.archived().await.unwrap(), 9).await.unwrap().from_start
    );
    after.copy_to_archive(archive, 4).await;
    assert_eq!(archive.archived().await.unwrap(), after.entries().await.last().cloned());

    let archived = archive.entries(0, usize::MAX).await.unwrap();
    let mut expected = before.entries().await;
    expected.extend(after.entries().await.into_iter().filter(|entry| entry.at == after.now()));
    assert_eq!(archived.len(), expected.len());
    assert!(archived.iter().zip(&expected).all(|(copy, entry)| copy.has_same_content(entry)));
    let story = archive.explain(fresh.id).await.unwrap();
    assert_eq!(story.len(), after.records.explain(fresh.id).await.unwrap().len());
    // From here on, archiving continues as usual.
    after.pass(1);
    live_on(&after, archive).await;
}

async fn live_on(source: &World, archive: &dyn Archive) {
    let count = archive.entries(0, usize::MAX).await.unwrap().len();
    refuse(source).await;
    source.copy_to_archive(archive, 500).await;
    assert_eq!(archive.entries(0, usize::MAX).await.unwrap().len(), count + 1);
}

pub(super) async fn an_older_copy_of_a_claim_does_not_replace_a_newer_one(world: World) {
    let archive = world.archive.as_ref();
    let before = other();
    let claim = before.serve(before.turnstile("a"), "t1").await;
    before.fetch(&claim).await;
    before.copy_to_archive(archive, 500).await;
    let after = other();
    let waiting = after.open(after.turnstile("a")).await;
    assert_eq!(waiting.id, claim.id);
    after.copy_to_archive(archive, 500).await;
    let known = archive.archived_claim(claim.id).await.unwrap().unwrap();
    assert_eq!(known.state, ClaimState::Served);
    assert!(known.delivered_at.is_some());
}

pub(super) async fn a_purged_dead_letter_leaves_the_archive(world: World) {
    let (source, archive) = (other(), world.archive.as_ref());
    let failed = source.fail(source.turnstile("a"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    source.copy_to_archive(archive, 500).await;
    let open = || archive.dead_letters(DeadLetterFilter::open(Scope::All, 9));
    assert_eq!(open().await.unwrap().items, [source.dead_letter(&failed).await]);
    source.store.purge(failed.solve.unwrap(), admin(), source.now()).await.unwrap();
    source.copy_to_archive(archive, 500).await;
    assert!(open().await.unwrap().items.is_empty());
    assert!(archive.dead_letter(failed.solve.unwrap()).await.unwrap().is_none());
}

pub(super) async fn an_archive_keeps_its_history_for_ninety_days(world: World) {
    let (source, archive) = (other(), world.archive.as_ref());
    let [served, ..] = live(&source).await;
    source.copy_to_archive(archive, 500).await;
    source.pass_days(89);
    archive.drop_old(1000, source.now()).await.unwrap();
    assert_eq!(history(archive).await.len(), 3);
    source.pass_days(2);
    archive.drop_old(1000, source.now()).await.unwrap();
    assert!(history(archive).await.is_empty());
    assert!(archive.explain(served.id).await.unwrap().is_empty());
    // The archive keeps its position and its last sequence number.
    source.open(source.turnstile("d")).await;
    source.copy_to_archive(archive, 500).await;
    assert_eq!(history(archive).await.len(), 1);
    assert_eq!(archive.entries(0, 99).await.unwrap().last(), source.entries().await.last());
}

// === a store with an archive ===

pub(super) async fn archived_records_are_dropped_a_day_after_their_end(world: World) {
    let archive = other().archive;
    let keyed = |world: &World| {
        let mut new = world.turnstile("a");
        new.key = named(&new, "k");
        new
    };
    let served = world.serve(keyed(&world), "t1").await;
    world.fetch(&served).await;
    world.copy_to_archive(archive.as_ref(), 500).await;
    world.pass(24 * 3600 - 1);
    // The first sweep drops the challenge, the second the records that refer to it.
    world.sweep_archived(archive.as_ref()).await;
    assert!(matches!(world.admit(keyed(&world)).await, Admission::Replayed(_)), "kept for a day");
    world.pass(1);
    refuse(&world).await;
    world.copy_to_archive(archive.as_ref(), 500).await;
    world.pass(2 * 3600);
    world.sweep_archived(archive.as_ref()).await;
    assert!(world.store.find_claim(served.id).await.unwrap().is_none());
    assert!(world.store.find_solve(served.solve.unwrap()).await.unwrap().is_none());
    assert!(history(world.records.as_ref()).await.is_empty());
    assert!(matches!(world.admit(keyed(&world)).await, Admission::Opened(_)), "a fresh claim");
    let entries = archive.explain(served.id).await.unwrap();
    assert!(
        entries.iter().any(|entry| matches!(entry.event, Event::Delivered { .. })),
        "{entries:?}"
    );
    world.pass_days(1);
    world.sweep_archived(archive.as_ref()).await;
    let left = world.entries().await;
    let last = archive.archived().await.unwrap().unwrap();
    assert_eq!(left.first(), Some(&last), "the last that was archived proves that it was");
    assert!(left.len() > 1, "what came after it was not archived");
    world.copy_to_archive(archive.as_ref(), 500).await;
    let all = archive.entries(0, usize::MAX).await.unwrap();
    assert_eq!(all.last(), left.last(), "and nothing was missed");
    assert!(all.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq));
}

pub(super) async fn records_that_are_not_archived_stay(world: World) {
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
    // With only the first entries archived, the store drops those, and no claim that has later entries.
    let lot = world.records.archive_batch(None, 3).await.unwrap();
    archive.archive(lot).await.unwrap();
    world.sweep_archived(archive.as_ref()).await;
    assert_eq!(history(world.records.as_ref()).await.len(), 3);
    world.copy_to_archive(archive.as_ref(), 500).await;
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
    stranger.copy_to_archive(archive.as_ref(), 500).await;
    let all = world.entries().await;
    // The sequence number exists in the archive, but belongs to another entry.
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
    world.copy_to_archive(archive.as_ref(), 500).await;
    world.pass_days(3);
    world.sweep_archived(archive.as_ref()).await;
    assert!(history(world.records.as_ref()).await.is_empty(), "the archive lists them");
    let back = world.bring_back(&failed).await;
    assert!(matches!(back, Revival::Back(Admission::Opened(_))), "{back:?}");
    world.copy_to_archive(archive.as_ref(), 500).await;
    world.pass_days(31);
    for _ in 0..3 {
        world.pass(7200);
        world.sweep_archived(archive.as_ref()).await;
        world.copy_to_archive(archive.as_ref(), 500).await;
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
    world.copy_to_archive(archive.as_ref(), 500).await;
    world.pass(2 * 3600);
    world.sweep_archived(archive.as_ref()).await;
    // The ledger is no longer archived.
    world.pass_days(30);
    let ask = || SweepRequest { history: History::InStore, ..SweepRequest::plain(1000) };
    world.store.sweep(ask(), world.now()).await.unwrap();
    assert!(world.store.find_solve(served.solve.unwrap()).await.unwrap().is_some());
    assert_eq!(history(world.records.as_ref()).await.len(), 1);
    world.pass_days(62);
    world.store.sweep(ask(), world.now()).await.unwrap();
    assert!(world.store.find_solve(served.solve.unwrap()).await.unwrap().is_none());
}
