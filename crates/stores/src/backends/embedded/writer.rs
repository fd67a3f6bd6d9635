//! The thread that writes. It runs all queued decisions in one transaction, commits once, and only then answers. An answered
//! decision is on the disk, and a batch shares one fsync.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use domain::ports::{BoxError, StoreError};
use redb::{Database, Durability};

use crate::{
    adapter::{DecideFn, Lane},
    optimistic::queued::QueuedDecision,
    schema::codec::Codec,
};

use super::{
    NAME, ROWS, corrupt, disk::DiskState, open::DirectoryLock, queue::Queue, tx::EmbeddedTx,
};

/// The queue of the writer thread. Dropping it waits until every queued decision is answered.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the writer and the readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) database: Database,
    pub(super) codec: Codec,
    /// The lock of the directory. It is declared after the database, so that it is released after the file is closed.
    #[cfg_attr(not(test), expect(dead_code, reason = "held until it is dropped"))]
    pub(super) lock: DirectoryLock,
    pub(super) disk: Arc<DiskState>,
    pub(super) commits: AtomicU64,
    pub(super) decisions: AtomicU64,
    /// Set after a failed fsync or a corrupt page, because the contents of the disk are then unknown.
    stopped: OnceLock<Stop>,
}

/// Why the store stopped.
#[derive(Debug)]
enum Stop {
    Disk(String),
    /// redb panicked on a corrupt page.
    Panic(String),
}

/// The most decisions in one transaction. Larger batches only take longer to commit.
const MAX_BATCH: usize = 512;

// === impl Writer ===

impl Writer {
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let ends = AbandonsQueue(Arc::clone(&queue));
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_all(&shared, &ends.0))?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Queues a decision, and waits until it is committed.
    pub(super) async fn commit(&self, decide: DecideFn, lane: Lane) -> Result<(), StoreError> {
        let gone = |_| unavailable("its writer thread has ended");
        let (queued, answer) = QueuedDecision::new(decide);
        // A closed queue drops the decision, and with it the other end of the answer.
        self.queue.push(queued, lane);
        answer.await.map_err(gone)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("embedded store writer panicked");
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(
        database: Database,
        lock: DirectoryLock,
        disk: Arc<DiskState>,
        codec: Codec,
    ) -> Self {
        Self {
            database,
            codec,
            lock,
            disk,
            commits: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
            stopped: OnceLock::new(),
        }
    }

    /// Fails once the store has stopped.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.stopped.get() {
            Some(Stop::Disk(why)) => Err(unavailable(format!(
                "{why}; the store stopped writing: check the disk, then restart"
            ))),
            Some(Stop::Panic(why)) => Err(corrupt("file", format!("{why}; restart to check it"))),
            None => Ok(()),
        }
    }

    fn stop(&self, why: Stop) {
        tracing::error!(?why, "embedded store stopped");
        // Only the first cause is kept.
        self.stopped.get_or_init(|| why);
    }
}

pub(super) fn unavailable(why: impl Into<BoxError>) -> StoreError {
    StoreError::unavailable(NAME, why)
}

// === the thread ===

/// However the thread ends, no caller waits for it.
struct AbandonsQueue(Arc<Queue>);

impl Drop for AbandonsQueue {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn write_all(shared: &Shared, queue: &Queue) {
    loop {
        let batch = queue.take(MAX_BATCH);
        if batch.is_empty() {
            return;
        }
        shared.decisions.fetch_add(batch.len() as u64, Ordering::Relaxed);
        write_batch(shared, batch);
    }
}

fn write_batch(shared: &Shared, mut batch: Vec<QueuedDecision>) {
    if shared.check().is_ok() {
        match write_once(shared, &mut batch) {
            // A decision that fails must not fail the others, so each one gets its own transaction.
            Ok(false) if batch.len() > 1 => {
                return batch.into_iter().for_each(|queued| write_batch(shared, vec![queued]));
            }
            // The failed decision stored its own error.
            Ok(_) => {}
            Err(why) => shared.stop(why),
        }
    }
    for queued in batch {
        queued.answer(shared.check());
    }
}

/// Returns `false` if a decision failed; then nothing was written.
fn write_once(shared: &Shared, batch: &mut [QueuedDecision]) -> Result<bool, Stop> {
    // redb panics on corrupt pages. The unwinding drops the transaction, which aborts it.
    match catch_unwind(AssertUnwindSafe(|| transact(shared, batch))) {
        Ok(written) => written.map_err(|why| Stop::Disk(why.to_string())),
        Err(panic) => Err(Stop::Panic(panic_message(&panic))),
    }
}

fn transact(shared: &Shared, batch: &mut [QueuedDecision]) -> Result<bool, redb::Error> {
    let mut transaction = shared.database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let mut rows = EmbeddedTx::new(transaction.open_table(ROWS)?, shared.codec);
    let good = batch.iter_mut().all(|queued| queued.run(&mut rows));
    let changed = rows.changed;
    drop(rows);
    if good && changed {
        transaction.commit()?;
        shared.commits.fetch_add(1, Ordering::Relaxed);
    } else {
        transaction.abort()?;
    }
    Ok(good)
}

/// Runs a read, and turns a panic of redb on a corrupt page into an error.
pub(super) fn catch_panic<T>(
    read: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|panic| Err(corrupt("file", panic_message(&panic))))
}

pub(super) fn panic_message(panic: &Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("internal invariant violated ({})", text.unwrap_or("no reason given"))
}
