//! The trait that every backend implements, and the slots through which decisions and queries return their results.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::ports::ServerTime;
use parking_lot::Mutex;

use crate::{
    Result,
    tx::{ReadTx, WriteTx},
};

/// A backend, as the adapter uses it.
#[async_trait]
pub(crate) trait TransactionRunner: fmt::Debug + Send + Sync + 'static {
    /// Runs a decision and commits its writes, all or none, durably. `decide` may run more than once; the last run counts.
    async fn decide(&self, decide: DecideFn, lane: Lane) -> Result<()>;

    /// Reads rows. The query sees every decision that was committed before. `read` may run more than once.
    async fn read(&self, read: ReadFn, extent: Extent) -> Result<()>;

    /// How long new work has to wait, because the backend does not keep up; fails while none is admitted. What follows money
    /// is not new work.
    fn admission_delay(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// What the server's clock shows; `None` without a server.
    async fn server_time(&self) -> Result<Option<ServerTime>> {
        Ok(None)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// Which queue a decision waits in, if it has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Leases and facts. They go first, so that no number of new claims makes a living gateway look dead.
    Urgent,
    /// Everything else.
    Normal,
}

/// A decision that stores its own result. It returns `false` when its writes must not be committed.
pub(crate) type DecideFn = Box<dyn FnMut(&mut dyn WriteTx) -> bool + Send>;

/// A query that stores its own result.
pub(crate) type ReadFn = Box<dyn FnMut(&dyn ReadTx) + Send>;

/// How much a query reads. A backend that blocks its thread moves scans to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    OneRow,
    Scan,
}

/// What a store of this process has done so far, for tests and benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The number of rows; only the memory store counts them.
    pub rows: usize,
    pub decisions: u64,
    pub commits: u64,
    pub fsyncs: u64,
    /// How often decisions ran again, because another gateway had changed what they read. Only on a server.
    pub conflicts: u64,
    /// How often a commit was sent again without that, because the ledger had grown. Only on Redis.
    pub renumbered: u64,
}

/// Where a decision or query leaves the result of its last run.
pub(crate) struct ResultSlot<T>(Arc<Mutex<Option<Result<T>>>>);

/// A decision to pass to a runner, and the slot for its result.
pub(crate) fn decision<T: Send + 'static>(
    mut decide: impl FnMut(&mut dyn WriteTx) -> Result<T> + Send + 'static,
) -> (DecideFn, ResultSlot<T>) {
    let slot = Arc::new(Mutex::new(None));
    let last = Arc::clone(&slot);
    let run = move |tx: &mut dyn WriteTx| {
        let result = decide(tx);
        let good = result.is_ok();
        *last.lock() = Some(result);
        good
    };
    (Box::new(run), ResultSlot(slot))
}

/// A query to pass to a runner, and the slot for its result.
pub(super) fn query<T: Send + 'static>(
    read: impl Fn(&dyn ReadTx) -> Result<T> + Send + 'static,
) -> (ReadFn, ResultSlot<T>) {
    let slot = Arc::new(Mutex::new(None));
    let last = Arc::clone(&slot);
    (Box::new(move |tx: &dyn ReadTx| *last.lock() = Some(read(tx))), ResultSlot(slot))
}

impl<T> ResultSlot<T> {
    pub(crate) fn take(&self) -> Result<T> {
        let result = self.0.lock().take();
        result.expect("a backend runs the decision or query before it returns Ok")
    }
}
