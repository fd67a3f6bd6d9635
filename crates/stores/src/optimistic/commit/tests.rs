//! Pages that get their numbers at the commit: within one batch, after a failed decision, and when the ledger has grown.

use std::collections::BTreeMap;

use domain::{
    chain::Verifier,
    id::{Project, SolveId, WorkerName},
    ledger::{Entry, Event},
    time::Timestamp,
};

use super::*;
use crate::{
    audit,
    decisions::support::ledger::{self, LAST_NUMBER, has_entry, write_page},
    schema::{
        codec::Codec,
        tables::{LedgerIndex, Pages, Subject},
    },
    tx::{Order, ReadTx, TypedRead as _, TypedWrite as _, WriteTx as _},
};

const KIND: BackendKind =
    BackendKind { codec: Codec::plain("x"), max_bytes: 1 << 20, refuses: |_| None };

fn solve(number: u64) -> SolveId {
    SolveId::from_number(number)
}

/// An entry about a solve.
fn entry(about: u64) -> Entry {
    Entry {
        seq: 0,
        at: Timestamp::from_millis(about),
        claim: None,
        solve: Some(solve(about)),
        worker: WorkerName::new("ann").unwrap(),
        project: Project::new("shop").unwrap(),
        kind: None,
        event: Event::Replayed,
    }
}

fn tx(cache: &RowCache) -> OptimisticTx<'_> {
    OptimisticTx::new(KIND, cache, false)
}

/// A commit of one page for each of the solves.
fn commit_of(cache: &RowCache, solves: &[u64]) -> Commit {
    let mut tx = tx(cache);
    for about in solves {
        tx.set_savepoint();
        tx.append(vec![entry(*about)]).unwrap();
    }
    Commit::new(KIND, tx.finish())
}

/// Commits to a server that has exactly the rows of the cache.
fn write(cache: &mut RowCache, mut commit: Commit) {
    commit.number_pages(cache).unwrap();
    for (key, write) in commit.writes {
        // Unlike the cache of a gateway, this one keeps all pages.
        let Write::Put(bytes) = write else { panic!("nothing is deleted") };
        let row = super::super::VersionedRow { version: commit.version, bytes };
        cache.apply_conflict(Conflict::Row(key, Some(row)));
    }
}

/// The solves of the ledger by the numbers of their entries, after its chain was verified.
fn ledger_of(cache: &RowCache) -> Vec<(u64, u64)> {
    let tx = tx(cache);
    let items = audit::chain(&tx, 0, usize::MAX).unwrap();
    let mut verifier = Verifier::default();
    items.iter().try_for_each(|item| verifier.check(item)).unwrap();
    let entries = ledger::entries(&tx, 0, usize::MAX).unwrap();
    let number = |entry: Entry| (entry.seq, entry.solve.unwrap().number());
    entries.into_iter().map(number).collect()
}

fn pages_about(tx: &dyn ReadTx, about: u64) -> Vec<u64> {
    ledger::pages_about(tx, Subject::Solve(solve(about)), 0, usize::MAX).unwrap()
}

#[test]
fn a_later_decision_of_a_batch_finds_the_page_of_an_earlier_one() {
    let cache = RowCache::default();
    let mut tx = tx(&cache);
    tx.append(vec![entry(7)]).unwrap();
    tx.set_savepoint();
    let about = |number| Subject::Solve(solve(number));
    assert!(has_entry(&tx, about(7), |entry| entry.solve == Some(solve(7))).unwrap());
    assert!(!has_entry(&tx, about(8), |_| true).unwrap());
    assert!(ledger::last_page(&tx).unwrap().is_none(), "it has no number yet");
}

#[test]
fn the_page_of_a_failed_decision_gets_no_number() {
    let mut cache = RowCache::default();
    let mut tx = tx(&cache);
    for about in 1..=3 {
        tx.set_savepoint();
        tx.append(vec![entry(about)]).unwrap();
        if about == 2 {
            tx.rollback_to_savepoint();
        }
    }
    let commit = Commit::new(KIND, tx.finish());
    write(&mut cache, commit);
    assert_eq!(ledger_of(&cache), [(1, 1), (2, 3)]);
    assert!(pages_about(&super::tests::tx(&cache), 2).is_empty());
}

#[test]
fn pages_are_numbered_again_after_the_ledger_has_grown() {
    let mut cache = RowCache::default();
    let first = commit_of(&cache, &[1]);
    write(&mut cache, first);
    let mut ours = commit_of(&cache, &[2, 3]);
    ours.number_pages(&cache).unwrap();
    assert!(ours.is_numbered_after(&cache));
    let theirs = commit_of(&cache, &[4]);
    write(&mut cache, theirs);
    assert!(!ours.is_numbered_after(&cache));
    let rows = ours.writes.len();
    write(&mut cache, ours.clone());
    assert_eq!(ledger_of(&cache), [(1, 1), (2, 4), (3, 2), (4, 3)]);
    assert_eq!(pages_about(&tx(&cache), 3), [4]);
    ours.number_pages(&cache).unwrap();
    assert_eq!(ours.writes.len(), rows, "no row of an earlier number is left");
}

#[test]
fn the_decisions_of_a_batch_do_not_read_the_end_of_the_ledger() {
    let mut cache = RowCache::default();
    let first = commit_of(&cache, &[1]);
    write(&mut cache, first);
    let mut commit = commit_of(&cache, &[2]);
    commit.number_pages(&cache).unwrap();
    assert!(commit.reads.is_empty());
    let (scan, read) = commit.ledger_end.scans.first_key_value().unwrap();
    assert_eq!(read.conflict_limit(), 1, "a server returns the last page alone");
    let grown = Conflict::Range { scan: scan.clone(), rows: Vec::new(), more: false };
    assert!(commit.is_ledger_end_only(std::slice::from_ref(&grown)));
    assert!(!commit.is_ledger_end_only(&[]));
    // A decision that reads the same range, as one of an archive does, must run again.
    commit.reads = commit.ledger_end.clone();
    assert!(!commit.is_ledger_end_only(&[grown]));
}

#[test]
fn pages_with_numbers_of_their_own_come_before_those_without() {
    let mut cache = RowCache::default();
    let mut tx = tx(&cache);
    tx.append(vec![entry(1)]).unwrap();
    let end = ledger::LedgerEnd::read(&tx).unwrap();
    write_page(&mut tx, end, vec![Entry { seq: 1, ..entry(2) }]).unwrap();
    let commit = Commit::new(KIND, tx.finish());
    write(&mut cache, commit);
    assert_eq!(ledger_of(&cache), [(1, 2), (2, 1)]);
}

#[test]
fn nothing_without_a_number_leaves_a_transaction() {
    let cache = RowCache::default();
    let mut tx = tx(&cache);
    tx.append(vec![entry(1), entry(2)]).unwrap();
    let unnumbered = LAST_NUMBER + 1..=u64::MAX;
    assert_eq!(tx.scan::<Pages>(unnumbered, Order::Rising, 9).unwrap().len(), 1);
    let memo = (Subject::Solve(solve(5)), 3);
    tx.put::<LedgerIndex>(memo, ()).unwrap();
    let finished = tx.finish();
    assert_eq!((finished.writes.len(), finished.appended.len()), (1, 1));
    assert_ne!(finished.writes, BTreeMap::new());
}
