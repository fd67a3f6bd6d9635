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

use domain::ports::{BoxError, StoreError};

use crate::desk::Shelved;

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
    /// Its name in messages.
    const NAME: &'static str;
    /// Bytes in one call, but for its last decision: challenges can be large.
    const MOST_BYTES: usize = 2 << 20;

    /// Why no row there can have this key. Who wants to write one is refused alone; the server would refuse the whole crowd.
    fn refuses(_key: &[u8]) -> Option<&'static str> {
        None
    }

    /// What a draft has to know of it.
    const KIND: BackendKind = BackendKind { name: Self::NAME, refuses: Self::refuses };

    /// The way to its writing task.
    fn asks(&self) -> &Asks<Self>;

    /// Has a commit compared that writes nothing: what is told is of one moment.
    fn look(&self, commit: &Commit) -> impl Future<Output = Result<Ended, StoreError>> + Send;
}

/// Whoever is away is asked again after a random part of this, doubled each time, up to the most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// At most so many rows come back for one range; a rule that wants more asks again.
const MOST_ROWS: usize = 5000;

impl<B: Far> Shelved for B {
    type Writable<'a> = Draft<'a>;
    type Readable<'a> = Draft<'a>;

    async fn decide<T, F>(&self, decide: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut Draft<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.asks().ask(decide).await
    }

    async fn look<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Draft<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        reading::read(self, read).await
    }

    async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Draft<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        reading::read(self, read).await
    }
}

/// A random part of a time that doubles.
pub(crate) fn pause(failures: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    longest.mul_f64(0.25 + 0.75 * fastrand::f64())
}

pub(crate) fn unavailable<B: Far>(why: impl Into<BoxError>) -> StoreError {
    StoreError::Unavailable { backend: B::NAME, source: why.into() }
}

/// The same failure for everybody of a crowd.
pub(crate) fn same<B: Far>(why: &StoreError) -> StoreError {
    match why {
        StoreError::Unavailable { source, .. } => unavailable::<B>(source.to_string()),
        StoreError::Corrupt { what, source, .. } => {
            StoreError::Corrupt { backend: B::NAME, what, source: source.to_string().into() }
        }
    }
}

/// A row that is nothing but its key.
pub(crate) fn plain() -> Row {
    Row { stamp: [0; 8], bytes: Arc::from([]) }
}
