//! `embedded:DIR` the store of a single process: one file, durable before anything is answered, safe against kill -9 at
//! any instruction. On redb.
//!
//! - `open`: the directory, its lock and its format; `disk`: the file
//! - `writer`: the one thread that writes, many decisions to an fsync
//! - `rows`: its transactions

mod disk;
mod open;
mod rows;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use domain::ports::{BoxError, StoreError};
use redb::{ReadableDatabase, TableDefinition};

use crate::{
    OpenError,
    adapter::{Counters, DecideFn, Driver, ReadFn},
};

use rows::OpenRows;
use writer::{Shared, Writer, guarded, unavailable};

const NAME: &str = "embedded";
const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// A store in a directory of its own, for one process.
pub(crate) struct Embedded {
    // Before the rest: the writer ends, then the file is closed, then the directory is free.
    writer: Writer,
    shared: Arc<Shared>,
    dir: PathBuf,
    fsyncs: Arc<AtomicU64>,
    #[cfg(test)]
    broken: Arc<std::sync::atomic::AtomicBool>,
}

// === impl Embedded ===

impl Embedded {
    /// Opens the store in `dir`, which is created when it does not exist.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        let dir = dir.to_owned();
        let opened = open::open(&dir)?;
        let shared = Arc::new(Shared::new(opened.database, opened.lock));
        let writer = Writer::start(Arc::clone(&shared))
            .map_err(|source| OpenError::Directory { dir: dir.clone(), source })?;
        Ok(Self {
            writer,
            shared,
            dir,
            fsyncs: opened.fsyncs,
            #[cfg(test)]
            broken: opened.broken,
        })
    }
}

#[async_trait]
impl Driver for Embedded {
    async fn decide(&self, decide: DecideFn) -> Result<(), StoreError> {
        self.writer.commit(decide).await
    }

    /// On this thread: a look-up of one record takes microseconds.
    async fn read_one(&self, read: ReadFn) -> Result<(), StoreError> {
        read_rows(&self.shared, read)
    }

    /// On a thread of its own, apart from those that answer.
    async fn read_list(&self, read: ReadFn) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let reading = tokio::task::spawn_blocking(move || read_rows(&shared, read));
        reading.await.unwrap_or_else(|why| Err(unavailable(why)))
    }

    fn counters(&self) -> Counters {
        Counters {
            rows: 0,
            decisions: self.shared.decisions.load(Ordering::Relaxed),
            commits: self.shared.commits.load(Ordering::Relaxed),
            fsyncs: self.fsyncs.load(Ordering::Relaxed),
        }
    }
}

/// Sees everything that was ever answered.
fn read_rows(shared: &Shared, mut read: ReadFn) -> Result<(), StoreError> {
    shared.check()?;
    guarded(|| {
        let transaction = shared.database.begin_read().map_err(unavailable)?;
        let rows = transaction.open_table(ROWS).map_err(unavailable)?;
        read(&OpenRows::new(rows));
        Ok(())
    })
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Something at rest that cannot be.
fn corrupt(what: &'static str, why: impl Into<BoxError>) -> StoreError {
    crate::codec::corrupt(NAME, what, why)
}
