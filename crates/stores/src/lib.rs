//! The shelves: one module per backend, one conformance suite for all.
//!
//! # Layout
//! - [`open`] turns a store's URL into a [`Backend`]
//! - `memory`, `embedded`: the backends; `doorbell`: hints within one process
//! - `rules/`: every decision, written once on top of a `shelf`; `readings`: every reading; `tables`: what is kept
//! - `conformance`: what every backend must do (feature `conformance`)

mod doorbell;
mod memory;
mod readings;
mod rules;
mod shelf;
mod tables;

use std::sync::Arc;

use domain::ports::{Doorbell, Records, Store};

pub use doorbell::LocalDoorbell;
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

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no store of this release.
    #[error(
        "{0:?} is no store of this release; use memory: or embedded:DIR (redis, postgres and dynamodb come in later releases)"
    )]
    Unknown(String),
}

/// Opens the store a URL names: `memory:` or `embedded:DIR`.
pub fn open(url: &str) -> Result<Backend, OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(backend(Arc::new(MemoryStore::new()), "memory")),
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
