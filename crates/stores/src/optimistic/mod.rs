//! Optimistic transactions on rows that live on a server. A decision runs in this process, on rows it has cached (`cache`), and
//! records what it read and what it wants to write (`tx`). The server compares the read set with its rows and writes all or
//! nothing. A conflict returns the current rows, and the decision runs again. Nothing is locked while a decision runs; a stale
//! cache costs a round trip, never a wrong decision.
//!
//! A write goes through the files in this order: `batch` queues the decision, `writer` takes a batch, `batch_run` runs it on a
//! `tx`, `commit` numbers its pages of the ledger, and the backend's `commit.rs` validates and writes (`committer` is what it
//! implements). `read` serves queries, `notify` wakes waiting claims, and `recovery` keeps the records that `restore` brings
//! back when the server loses data (`meta`).

pub(crate) mod batch;
pub(crate) mod batch_run;
pub(crate) mod cache;
pub(crate) mod commit;
pub(crate) mod committer;
pub(crate) mod counters;
#[cfg(test)]
pub(crate) mod in_process;
pub(crate) mod meta;
pub(crate) mod notify;
pub(crate) mod queued;
pub(crate) mod read;
pub(crate) mod read_set;
pub(crate) mod recovery;
#[expect(
    clippy::disallowed_methods,
    reason = "a restore waits for other gateways in real time, like the server that it restores"
)]
pub(crate) mod restore;
mod sum_lane;
pub(crate) mod tx;
#[expect(
    clippy::disallowed_methods,
    reason = "the writer task lives as long as the store it writes to"
)]
pub(crate) mod writer;

pub(crate) use batch::WriteQueue;
pub(crate) use batch_run::BatchRun;
pub(crate) use cache::{Conflict, RowCache};
pub(crate) use commit::Commit;
pub(crate) use committer::{CommitError, CommitOutcome, CommitSeq, Committer};
pub(crate) use read_set::{RangeRead, ReadSet, ScanRange};
pub(crate) use tx::{BackendKind, OptimisticTx, Write};

use std::{fmt, future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use counters::WriteCounters;
use domain::ports::{BoxError, ServerTime, StoreError};

use crate::{
    Result,
    adapter::{Counters, DecideFn, Extent, Lane, ReadFn, TransactionRunner},
};

/// The version of a row: a new random value for every commit that writes it.
pub(crate) type RowVersion = [u8; 8];

/// A key with the tag of its table in front.
pub(crate) type RawKey = Arc<[u8]>;

/// A row as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionedRow {
    pub(crate) version: RowVersion,
    pub(crate) bytes: Arc<[u8]>,
}

/// A backend whose rows live on a server: a validator for queries, and the queue of the writer task for decisions.
pub(crate) struct RemoteBackend<V> {
    kind: BackendKind,
    validator: Arc<V>,
    queue: WriteQueue,
    counters: Arc<WriteCounters>,
}

/// What queries ask of the server: to compare their read sets with its rows, and its time.
pub(crate) trait Validator: Send + Sync + 'static {
    /// Compares everything at one moment.
    fn validate(&self, reads: &ReadSet) -> impl Future<Output = Result<CommitOutcome>> + Send;

    /// How long new work has to wait; fails while none is admitted.
    fn admission_delay(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// What its clock shows.
    fn server_time(&self) -> impl Future<Output = Result<ServerTime>> + Send;
}

/// A conflict returns at most this many rows of one range; a decision that needs more scans again.
const MAX_CONFLICT_ROWS: usize = 5000;

// === impl RemoteBackend ===

impl<V: Validator> RemoteBackend<V> {
    pub(crate) fn start<C: Committer>(
        kind: BackendKind,
        validator: Arc<V>,
        committer: C,
        cache: RowCache,
    ) -> Self {
        let counters = Arc::default();
        let queue = writer::spawn(kind, committer, cache, Arc::clone(&counters));
        Self { kind, validator, queue, counters }
    }
}

#[async_trait]
impl<V: Validator> TransactionRunner for RemoteBackend<V> {
    async fn decide(&self, decide: DecideFn, lane: Lane) -> Result<()> {
        self.queue.commit(decide, lane).await
    }

    async fn read(&self, read: ReadFn, _: Extent) -> Result<()> {
        read::read(self, read).await
    }

    fn admission_delay(&self) -> Result<Duration> {
        self.validator.admission_delay()
    }

    async fn server_time(&self) -> Result<Option<ServerTime>> {
        self.validator.server_time().await.map(Some)
    }

    fn counters(&self) -> Counters {
        self.counters.read()
    }
}

impl<V> fmt::Debug for RemoteBackend<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteBackend").field("kind", &self.kind.name()).finish_non_exhaustive()
    }
}

pub(crate) fn unavailable(backend: &'static str, why: impl Into<BoxError>) -> StoreError {
    StoreError::unavailable(backend, why)
}

// === impl VersionedRow ===

impl VersionedRow {
    /// A row that is nothing but its key.
    pub(crate) fn key_only() -> Self {
        Self { version: [0; 8], bytes: Arc::from([]) }
    }
}
