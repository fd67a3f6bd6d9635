//! `memory:` the store for tests, trials and single processes that may forget: ordered maps behind one lock. It is the
//! model the other stores are compared with.

use std::{fmt, sync::Mutex};

use domain::ports::StoreError;

use crate::{
    desk::{Desk, Shelved},
    tables::Maps,
};

/// A store that lives as long as its process.
pub type MemoryStore = Desk<Memory>;

/// The maps.
#[derive(Default)]
pub struct Memory {
    maps: Mutex<Maps>,
}

// === impl Memory ===

impl Desk<Memory> {
    /// An empty store.
    pub fn new() -> Self {
        Self(Memory::default())
    }
}

impl Default for Desk<Memory> {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// How many rows it keeps.
    pub fn rows(&self) -> usize {
        self.with(|maps| Ok(maps.rows())).unwrap_or(0)
    }

    fn with<T>(
        &self,
        decide: impl FnOnce(&mut Maps) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // A rule that panicked may have left half a decision behind: nothing is built on that.
        let mut maps = self.maps.lock().map_err(|_| StoreError::Unavailable {
            backend: "memory",
            source: "an earlier decision panicked; restart the process".into(),
        })?;
        decide(&mut maps)
    }
}

impl Shelved for Memory {
    type Writable<'a> = Maps;
    type Readable<'a> = Maps;

    async fn decide<T, F>(&self, decide: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut Maps) -> Result<T, StoreError> + Send + 'static,
    {
        self.with(decide)
    }

    async fn look<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Maps) -> Result<T, StoreError> + Send + 'static,
    {
        self.with(|maps| read(maps))
    }

    async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Maps) -> Result<T, StoreError> + Send + 'static,
    {
        self.with(|maps| read(maps))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
