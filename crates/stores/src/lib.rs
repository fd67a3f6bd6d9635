//! The shelves: one module per backend, one conformance suite for all.
//!
//! # Layout
//! - [`open`] turns a store's URL into a [`Backend`]
//! - `memory`, `embedded`: the backends; `doorbell`: hints within one process
//! - `rules/`: every decision, written once on top of a `shelf`; `readings`: every reading; `tables`: what is kept
//! - `conformance`: what every backend must do (feature `conformance`)

#[cfg(feature = "conformance")]
pub mod conformance;
mod doorbell;
mod embedded;
mod memory;
mod readings;
mod rules;
mod shelf;
mod tables;

use std::{io, path::PathBuf, sync::Arc};

use domain::ports::{Doorbell, Records, Store};

pub use doorbell::LocalDoorbell;
pub use embedded::EmbeddedStore;
pub use memory::MemoryStore;

/// An open store in its three roles.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The decisions.
    pub store: Arc<dyn Store>,
    /// The readings.
    pub records: Arc<dyn Records>,
    /// The hints.
    pub doorbell: Arc<dyn Doorbell>,
    /// Its name in messages and metrics.
    pub name: &'static str,
}

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no store of this release.
    #[error(
        "{0:?} is no store of this release; use memory: or embedded:DIR (redis, postgres and dynamodb come in later releases)"
    )]
    Unknown(String),
    /// `embedded:` without a directory.
    #[error("embedded: needs a directory; write it as embedded:./solvegate-data")]
    NoDirectory,
    /// The directory or a file in it cannot be used.
    #[error("the store directory {} cannot be used: {source}; check that it exists and belongs to this user", dir.display())]
    Directory {
        /// Which.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the store directory {} is in use by another process; stop that one, or give this one a directory of its own", dir.display())]
    InUse {
        /// Which.
        dir: PathBuf,
    },
    /// It was written by another release.
    #[error("the store in {} has format {found} and this release reads format {known}; start the release that wrote it, or use another directory", dir.display())]
    Format {
        /// Which.
        dir: PathBuf,
        /// What it says it is.
        found: String,
        /// What this release reads.
        known: u8,
    },
    /// Its data cannot be trusted.
    #[error("the store in {} is damaged: {why}; restore the directory from a backup, or move it away to start empty", dir.display())]
    Damaged {
        /// Which.
        dir: PathBuf,
        /// What was found.
        why: String,
    },
}

/// Opens the store a URL names: `memory:` or `embedded:DIR`.
pub fn open(url: &str) -> Result<Backend, OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(backend(Arc::new(MemoryStore::new()), "memory")),
        Some(("embedded", "")) => Err(OpenError::NoDirectory),
        Some(("embedded", dir)) => Ok(backend(Arc::new(EmbeddedStore::open(dir)?), "embedded")),
        Some(_) | None => Err(OpenError::Unknown(scheme_of(url))),
    }
}

fn backend<S: Store + Records>(store: Arc<S>, name: &'static str) -> Backend {
    Backend {
        records: Arc::clone(&store) as Arc<dyn Records>,
        store,
        doorbell: Arc::new(LocalDoorbell::new()),
        name,
    }
}

/// What comes after the scheme may hold a password.
fn scheme_of(url: &str) -> String {
    url.split(':').next().unwrap_or_default().chars().take(40).collect()
}
