//! `embedded:DIR` keeps the rows of one process in a redb file. A decision is on the disk before it is answered, and the file
//! survives kill -9 at any instruction.
//!
//! - `open`: the directory, its lock and its format; `disk`: the data file
//! - `queue`: the decisions that wait; `writer`: the one thread that writes, with many decisions per fsync
//! - `tx`: the transactions

mod disk;
mod open;
mod queue;
mod tx;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use async_trait::async_trait;
use domain::ports::{BoxError, StoreError};
use redb::{ReadableDatabase, TableDefinition};

use crate::{
    OpenError,
    adapter::{Counters, DecideFn, Extent, Lane, ReadFn, TransactionRunner},
    schema::{codec::Codec, seal::Keyring},
};

use tx::EmbeddedTx;
use writer::{Shared, Writer, catch_panic, unavailable};

const NAME: &str = "embedded";
const CODEC: Codec = Codec::plain(NAME);
const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

#[derive(Debug)]
pub(crate) struct Embedded {
    // The first field, so that it is dropped first: the writer ends before the file closes and the lock is released.
    writer: Writer,
    shared: Arc<Shared>,
}

impl Embedded {
    /// Opens the store in `dir`, which is created when it does not exist.
    pub(crate) fn open(dir: &Path, keys: Option<&'static Keyring>) -> Result<Self, OpenError> {
        let shared = Arc::new(open::open(dir, Codec { keys, ..CODEC })?);
        let writer = Writer::start(Arc::clone(&shared))
            .map_err(|source| OpenError::Directory { dir: dir.to_owned(), source })?;
        Ok(Self { writer, shared })
    }
}

#[async_trait]
impl TransactionRunner for Embedded {
    async fn decide(&self, decide: DecideFn, lane: Lane) -> Result<(), StoreError> {
        self.writer.commit(decide, lane).await
    }

    async fn read(&self, read: ReadFn, extent: Extent) -> Result<(), StoreError> {
        match extent {
            // One row takes microseconds.
            Extent::OneRow => read_rows(&self.shared, read),
            // A scan can take long enough to delay the requests that share this thread.
            Extent::Scan => {
                let shared = Arc::clone(&self.shared);
                let reading = tokio::task::spawn_blocking(move || read_rows(&shared, read));
                reading.await.unwrap_or_else(|why| Err(unavailable(why)))
            }
        }
    }

    fn counters(&self) -> Counters {
        Counters {
            rows: 0,
            decisions: self.shared.decisions.load(Ordering::Relaxed),
            commits: self.shared.commits.load(Ordering::Relaxed),
            fsyncs: self.shared.disk.fsyncs.load(Ordering::Relaxed),
            ..Counters::default()
        }
    }
}

fn read_rows(shared: &Shared, mut read: ReadFn) -> Result<(), StoreError> {
    shared.check()?;
    catch_panic(|| {
        let transaction = shared.database.begin_read().map_err(unavailable)?;
        let rows = transaction.open_table(ROWS).map_err(unavailable)?;
        read(&EmbeddedTx::new(rows, shared.codec));
        Ok(())
    })
}

fn corrupt(what: &'static str, why: impl Into<BoxError>) -> StoreError {
    crate::schema::codec::corrupt(NAME, what, why)
}
