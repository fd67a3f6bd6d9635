//! The writer task on a server that keeps its rows in memory, which another gateway has changed.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use domain::{
    challenge::Kind,
    id::{Project, SolveId, WorkerName},
    ledger::{Counts, Entry, Event, Total},
    time::{Day, Timestamp},
};
use parking_lot::Mutex;

use super::*;
use crate::{
    adapter::{Lane, decision},
    decisions::support::{lanes, ledger},
    optimistic::{CommitError, Conflict, OptimisticTx, RawKey, VersionedRow, Write},
    schema::{
        codec::Codec,
        keys::{Text, all},
        tables::{Memos, Totals},
    },
    tx::{Order, TypedRead as _, TypedWrite as _, WriteTx},
};

const KIND: BackendKind =
    BackendKind { codec: Codec::plain("x"), max_bytes: 1 << 20, refuses: |_| None };

/// All rows of the server. A cache is enough for that.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<RowCache>>);

// === impl Server ===

impl Server {
    fn conflicts(&self, reads: &ReadSet) -> Vec<Conflict> {
        let rows = self.0.lock();
        let mut found = Vec::new();
        for (key, version) in &reads.rows {
            let row = rows.get(key).cloned();
            if row.as_ref().map(|row| row.version) != *version {
                found.push(Conflict::Row(key.clone(), row));
            }
        }
        for (scan, read) in &reads.scans {
            let part = scan.covered(read.until.as_ref());
            if !rows.range(&part, scan.order()).map(|(key, _)| key).eq(&read.keys) {
                let all = scan.covered(None);
                let current = rows.range(&all, scan.order());
                let current = current.map(|(key, row)| (key.clone(), row.clone())).collect();
                found.push(Conflict::Range { scan: scan.clone(), rows: current, more: false });
            }
        }
        found
    }

    /// What another gateway writes.
    fn decide(&self, decide: impl Fn(&mut dyn WriteTx) -> Result<()>) {
        self.decide_in(0, decide);
    }

    fn decide_in(&self, lane: u8, decide: impl Fn(&mut dyn WriteTx) -> Result<()>) {
        let cache = std::mem::take(&mut *self.0.lock());
        let mut tx = OptimisticTx::new(KIND, &cache, false).in_lane(lane);
        decide(&mut tx).unwrap();
        let mut commit = Commit::new(KIND, tx.finish());
        commit.number_pages(&cache).unwrap();
        *self.0.lock() = cache;
        self.write(&commit);
    }

    fn write(&self, commit: &Commit) {
        let mut rows = self.0.lock();
        for (key, write) in &commit.writes {
            let row = match write {
                Write::Put(bytes) => {
                    Some(VersionedRow { version: commit.version, bytes: bytes.clone() })
                }
                Write::Delete => None,
            };
            rows.apply_conflict(Conflict::Row(RawKey::clone(key), row));
        }
    }

    /// The sum of all lanes, and the lanes that have a row.
    fn opened(&self) -> (u64, Vec<u8>) {
        let rows = self.0.lock();
        let tx = OptimisticTx::new(KIND, &rows, false);
        let totals = tx.scan::<Totals>(all(), Order::Rising, usize::MAX).unwrap();
        let sum = totals.iter().map(|(_, total)| total.counts.opened).sum();
        let has_row = |lane: &u8| {
            totals
                .iter()
                .any(|((_, label), _)| *label == lanes::name_in(*lane, "ann/shop/turnstile"))
        };
        (sum, (0..=lanes::LAST_LANE).filter(has_row).collect())
    }

    /// The times of the entries of its ledger, which are gapless.
    fn ledger(&self) -> Vec<u64> {
        let rows = self.0.lock();
        let entries =
            ledger::entries(&OptimisticTx::new(KIND, &rows, false), 0, usize::MAX).unwrap();
        for (at, entry) in (1..).zip(&entries) {
            assert_eq!(entry.seq, at);
        }
        entries.into_iter().map(|entry| entry.at.millis()).collect()
    }
}

impl Committer for Server {
    async fn validate(&mut self, _: &mut RowCache, reads: &ReadSet) -> Result<CommitOutcome> {
        Ok(CommitOutcome::of_conflicts(self.conflicts(reads)))
    }

    async fn commit(
        &mut self,
        _: &mut RowCache,
        commit: &mut Commit,
        _: &mut BatchRun<'_>,
        _: CommitSeq,
    ) -> Result<CommitOutcome, CommitError> {
        let mut conflicts = self.conflicts(&commit.reads);
        conflicts.extend(self.conflicts(&commit.ledger_end));
        if conflicts.is_empty() {
            self.write(commit);
        }
        Ok(CommitOutcome::of_conflicts(conflicts))
    }
}

fn entry(at: u64) -> Entry {
    Entry {
        seq: 0,
        at: Timestamp::from_millis(at),
        claim: None,
        solve: Some(SolveId::from_number(1)),
        worker: WorkerName::new("ann").unwrap(),
        project: Project::new("shop").unwrap(),
        kind: None,
        event: Event::Replayed,
    }
}

fn memo() -> Text {
    Text::new("memo")
}

/// Runs a decision at a gateway and counts how often it runs.
async fn decide(
    queue: &WriteQueue,
    decide: impl Fn(&mut dyn WriteTx) -> Result<()> + Send + 'static,
) -> usize {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let (decide, slot) = decision(move |tx| {
        counted.fetch_add(1, Ordering::Relaxed);
        decide(tx)
    });
    queue.commit(decide, Lane::Normal).await.unwrap();
    slot.take().unwrap();
    runs.load(Ordering::Relaxed)
}

#[tokio::test]
async fn decisions_do_not_run_again_because_the_ledger_has_grown() {
    let server = Server::default();
    let queue = spawn(KIND, server.clone(), RowCache::default(), Arc::default());
    assert_eq!(decide(&queue, |tx| tx.append(vec![entry(1)])).await, 1);
    server.decide(|tx| tx.append(vec![entry(2), entry(3)]));
    assert_eq!(decide(&queue, |tx| tx.append(vec![entry(4)])).await, 1);
    assert_eq!(server.ledger(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_decision_that_only_appends_is_written_after_a_conflict() {
    let server = Server::default();
    let queue = spawn(KIND, server.clone(), RowCache::default(), Arc::default());
    decide(&queue, |tx| tx.put::<Memos>(memo(), vec![1])).await;
    server.decide(|tx| tx.take::<Memos>(&memo()).map(drop));
    let append_without_memo = |tx: &mut dyn WriteTx| match tx.get::<Memos>(&memo())? {
        Some(_) => Ok(()),
        None => tx.append(vec![entry(1)]),
    };
    assert_eq!(decide(&queue, append_without_memo).await, 2);
    assert_eq!(server.ledger(), [1]);
}

fn count_opened(tx: &mut dyn WriteTx) -> Result<()> {
    let (worker, project) = (WorkerName::new("ann").unwrap(), Project::new("shop").unwrap());
    let counts = Counts { opened: 1, ..Counts::default() };
    let total = Total::new(Day::from_number(1), worker, project, Kind::Turnstile, counts);
    ledger::add_to_total(tx, total)
}

#[tokio::test]
async fn decisions_do_not_run_again_because_another_lane_has_grown() {
    let server = Server::default();
    let queue = spawn(KIND, server.clone(), RowCache::default(), Arc::default());
    assert_eq!(decide(&queue, count_opened).await, 1);
    let own = server.opened().1[0];
    for other in (0..=lanes::LAST_LANE).filter(|lane| *lane != own) {
        server.decide_in(other, count_opened);
        assert_eq!(decide(&queue, count_opened).await, 1);
    }
    assert_eq!(server.opened().0, 31);
}

#[tokio::test]
async fn a_gateway_leaves_a_lane_that_another_one_adds_to() {
    let server = Server::default();
    let queue = spawn(KIND, server.clone(), RowCache::default(), Arc::default());
    decide(&queue, count_opened).await;
    let [shared] = server.opened().1[..] else { panic!("{:?}", server.opened()) };
    server.decide_in(shared, count_opened);
    assert_eq!(decide(&queue, count_opened).await, 2);
    assert_eq!(server.opened().1.len(), 2, "it has moved to another lane");
    for _ in 0..10 {
        server.decide_in(shared, count_opened);
        assert_eq!(decide(&queue, count_opened).await, 1);
    }
    assert_eq!(server.opened().0, 23);
}
