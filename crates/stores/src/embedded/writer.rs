//! The one thread that writes. It takes every decision that waits, makes them in one transaction, commits once, and
//! only then answers: what was answered is on the disk, and a batch shares one fsync.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use domain::ports::{BoxError, StoreError};
use redb::{Database, Durability};

use crate::{adapter::DecideFn, queued::QueuedDecision};

use super::{NAME, ROWS, corrupt, open::DirectoryLock, rows::OpenRows};

/// The way to the writing thread; dropping it waits until everything asked is answered.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<Sender<QueuedDecision>>,
    thread: Option<JoinHandle<()>>,
}

/// What writer and readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) database: Database,
    /// The directory's: let go only after the file is closed, whoever reads last.
    #[cfg_attr(not(test), expect(dead_code, reason = "kept until it is dropped"))]
    pub(super) lock: DirectoryLock,
    pub(super) commits: AtomicU64,
    pub(super) decisions: AtomicU64,
    /// Set once: after a failed fsync, or on a page that cannot be, nobody knows what is on the disk.
    stopped: OnceLock<Stop>,
}

/// Why the store stopped.
#[derive(Debug)]
enum Stop {
    /// The disk failed.
    Disk(String),
    /// Something panicked on what it read.
    Panic(String),
}

/// How one transaction ended.
enum Ended {
    /// Everything is on the disk.
    Durable,
    /// A decision failed; nothing was written.
    Refused,
    /// The store cannot go on.
    Stopped(Stop),
}

/// Decisions in one transaction at most: beyond this a commit only takes longer.
const MAX_BATCH: usize = 512;

// === impl Writer ===

impl Writer {
    /// Starts the thread.
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let (queue, asked) = channel();
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_all(&shared, &asked))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Commits a decision, durably.
    pub(super) async fn commit(&self, decide: DecideFn) -> Result<(), StoreError> {
        let gone = || unavailable("its writing thread has ended");
        let (queued, answer) = QueuedDecision::new(decide);
        self.queue.as_ref().ok_or_else(gone)?.send(queued).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("embedded store writer panicked");
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(database: Database, lock: DirectoryLock) -> Self {
        Self {
            database,
            lock,
            commits: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
            stopped: OnceLock::new(),
        }
    }

    /// Refuses everything once the store has stopped.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.stopped.get() {
            Some(Stop::Disk(why)) => Err(unavailable(format!(
                "{why}; nothing is written any more: check the disk, then restart"
            ))),
            Some(Stop::Panic(why)) => Err(corrupt("file", format!("{why}; restart to check it"))),
            None => Ok(()),
        }
    }

    fn stop(&self, why: Stop) {
        tracing::error!(?why, "embedded store stopped");
        // The first cause stands.
        self.stopped.get_or_init(|| why);
    }
}

pub(super) fn unavailable(why: impl Into<BoxError>) -> StoreError {
    StoreError::Unavailable { backend: NAME, source: why.into() }
}

// === the thread ===

fn write_all(shared: &Shared, asked: &Receiver<QueuedDecision>) {
    while let Ok(first) = asked.recv() {
        let mut batch = vec![first];
        batch.extend(asked.try_iter().take(MAX_BATCH - 1));
        shared.decisions.fetch_add(batch.len() as u64, Ordering::Relaxed);
        write_batch(shared, batch);
    }
}

fn write_batch(shared: &Shared, mut batch: Vec<QueuedDecision>) {
    if shared.check().is_ok() {
        match write_once(shared, &mut batch) {
            // One that fails must not take the others with it.
            Ended::Refused if batch.len() > 1 => {
                return batch.into_iter().for_each(|queued| write_batch(shared, vec![queued]));
            }
            // A failure of its own is the answer.
            Ended::Durable | Ended::Refused => {}
            Ended::Stopped(why) => shared.stop(why),
        }
    }
    for queued in batch {
        queued.answer(shared.check());
    }
}

fn write_once(shared: &Shared, batch: &mut [QueuedDecision]) -> Ended {
    // redb asserts on pages that cannot be; half a transaction is dropped with the panic.
    let written = catch_unwind(AssertUnwindSafe(|| transact(shared, batch)));
    match written {
        Ok(Ok(ended)) => ended,
        Ok(Err(why)) => Ended::Stopped(Stop::Disk(why.to_string())),
        Err(panic) => Ended::Stopped(Stop::Panic(said(&panic))),
    }
}

fn transact(shared: &Shared, batch: &mut [QueuedDecision]) -> Result<Ended, redb::Error> {
    let mut transaction = shared.database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let mut rows = OpenRows::new(transaction.open_table(ROWS)?);
    let good = batch.iter_mut().all(|queued| queued.run(&mut rows));
    let changed = rows.changed;
    drop(rows);
    if good && changed {
        transaction.commit()?;
        shared.commits.fetch_add(1, Ordering::Relaxed);
    } else {
        transaction.abort()?;
    }
    Ok(if good { Ended::Durable } else { Ended::Refused })
}

/// Reads, with a panic of redb on an impossible page turned into what it means.
pub(super) fn guarded<T>(read: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| Err(corrupt("file", said(&panic))))
}

/// What a panic said.
pub(super) fn said(panic: &Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("something impossible was met ({})", text.unwrap_or("no reason given"))
}
