//! Deciding on rows that lie on a server. A rule runs here, on what this process remembers (`image`), and leaves behind
//! what it assumed and what it wants written (`draft`). The server compares the assumptions and writes all or nothing; what
//! was wrong comes back as corrections, and the rule runs again. Nothing is locked, and a memory that is out of date costs a
//! round trip, never a wrong decision. Decisions that wait are made together (`crowd`); readings go the same way
//! (`reading`), and so do hints (`bell`).

pub(crate) mod bell;
pub(crate) mod crowd;
pub(crate) mod draft;
pub(crate) mod image;
pub(crate) mod journal;
pub(crate) mod reading;

pub(crate) use crowd::{Asks, Commit, Crowd, Ended, Failed, Memory, Scribe, Turn};
pub(crate) use draft::{Assumed, BackendKind, Draft, Span, Write};
pub(crate) use image::{Correction, Image};

use std::{fmt, future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::ports::{BoxError, StoreError};

use crate::adapter::{DecideFn, Driver, ReadFn};

/// The version of a row: drawn anew for every commit that writes it.
pub(crate) type Stamp = [u8; 8];

/// A row as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) stamp: Stamp,
    pub(crate) bytes: Arc<[u8]>,
}

/// A key with its table's tag in front.
pub(crate) type Key = Arc<[u8]>;

/// A backend whose rows lie on a server.
pub(crate) trait Far: fmt::Debug + Send + Sync + Sized + 'static {
    /// What decisions have to know of it.
    const KIND: BackendKind;

    /// The way to its writing task.
    fn asks(&self) -> &Asks;

    /// Has a commit compared that writes nothing: what is told is of one moment.
    fn look(&self, commit: &Commit) -> impl Future<Output = Result<Ended, StoreError>> + Send;
}

/// Whoever is away is asked again after a random part of this, doubled each time, up to the most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// At most so many rows come back for one range; a rule that wants more asks again.
const MOST_ROWS: usize = 5000;

#[async_trait]
impl<B: Far> Driver for B {
    async fn decide(&self, decide: DecideFn) -> Result<(), StoreError> {
        self.asks().commit(decide).await
    }

    async fn read_one(&self, read: ReadFn) -> Result<(), StoreError> {
        reading::read(self, read).await
    }

    async fn read_list(&self, read: ReadFn) -> Result<(), StoreError> {
        reading::read(self, read).await
    }
}

/// A random part of a time that doubles.
pub(crate) fn pause(failures: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    longest.mul_f64(0.25 + 0.75 * fastrand::f64())
}

pub(crate) fn unavailable(backend: &'static str, why: impl Into<BoxError>) -> StoreError {
    StoreError::Unavailable { backend, source: why.into() }
}

/// The same failure for everybody of a crowd.
pub(crate) fn same(backend: &'static str, why: &StoreError) -> StoreError {
    match why {
        StoreError::Unavailable { source, .. } => unavailable(backend, source.to_string()),
        StoreError::Corrupt { what, source, .. } => {
            StoreError::Corrupt { backend, what, source: source.to_string().into() }
        }
    }
}

/// A row that is nothing but its key.
pub(crate) fn plain() -> Row {
    Row { stamp: [0; 8], bytes: Arc::from([]) }
}
