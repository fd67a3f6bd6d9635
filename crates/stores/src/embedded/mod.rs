//! `embedded:DIR` the store of a single process: one file, durable before anything is answered, safe against kill -9 at
//! any instruction. On redb.
//!
//! - `open`: the directory, its lock and its format; `disk`: the file
//! - `writer`: the one thread that writes, many decisions to an fsync
//! - `rows`: the shelf

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

use domain::ports::{BoxError, StoreError};
use redb::{ReadOnlyTable, ReadableDatabase, TableDefinition};

use crate::{
    OpenError,
    desk::{Desk, Shelved},
};

use rows::{OpenRows, WriteRows};
use writer::{Shared, Writer, guarded, unavailable};

const NAME: &str = "embedded";
const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// A store in a directory of its own, for one process.
pub type EmbeddedStore = Desk<Embedded>;

/// The directory, open.
pub struct Embedded {
    // Before the rest: the writer ends, then the file is closed, then the directory is free.
    writer: Writer,
    shared: Arc<Shared>,
    dir: PathBuf,
    fsyncs: Arc<AtomicU64>,
    #[cfg(test)]
    broken: Arc<std::sync::atomic::AtomicBool>,
}

/// The rows, open to read.
pub(crate) type ReadRows = OpenRows<ReadOnlyTable<&'static [u8], &'static [u8]>>;

// === impl Embedded ===

impl Desk<Embedded> {
    /// Opens the store in `dir`, which is made when it is not there.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref().to_owned();
        let opened = open::open(&dir)?;
        let shared = Arc::new(Shared::new(opened.database, opened.lock));
        let writer = Writer::start(Arc::clone(&shared))
            .map_err(|source| OpenError::Directory { dir: dir.clone(), source })?;
        Ok(Self(Embedded {
            writer,
            shared,
            dir,
            fsyncs: opened.fsyncs,
            #[cfg(test)]
            broken: opened.broken,
        }))
    }
}

impl Embedded {
    /// How often the disk was asked to keep what it has.
    pub fn fsyncs(&self) -> u64 {
        self.fsyncs.load(Ordering::Relaxed)
    }

    /// How many transactions were committed.
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// How many decisions were made.
    pub fn decisions(&self) -> u64 {
        self.shared.decisions.load(Ordering::Relaxed)
    }
}

impl Shelved for Embedded {
    type Writable<'a> = WriteRows<'a>;
    type Readable<'a> = ReadRows;

    async fn decide<T, F>(&self, decide: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteRows<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer.ask(decide).await
    }

    /// At once: a look-up of one record takes microseconds.
    async fn look<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&ReadRows) -> Result<T, StoreError> + Send + 'static,
    {
        read_rows(&self.shared, read)
    }

    /// Apart from the threads that answer.
    async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&ReadRows) -> Result<T, StoreError> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let reading = tokio::task::spawn_blocking(move || read_rows(&shared, read));
        reading.await.unwrap_or_else(|why| Err(unavailable(why)))
    }
}

/// Sees everything that was ever answered.
fn read_rows<T>(
    shared: &Shared,
    read: impl FnOnce(&ReadRows) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    shared.check()?;
    guarded(|| {
        let transaction = shared.database.begin_read().map_err(unavailable)?;
        let rows = transaction.open_table(ROWS).map_err(unavailable)?;
        read(&OpenRows::new(rows))
    })
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Something at rest that cannot be.
fn corrupt(what: &'static str, why: impl Into<BoxError>) -> StoreError {
    crate::codec::corrupt(NAME, what, why)
}
