//! Deciding on rows that lie on a server. A rule runs here, on what this process remembers (`image`), and leaves behind
//! what it assumed and what it wants written (`draft`). The server compares the assumptions and writes all or nothing; what
//! was wrong comes back as corrections, and the rule runs again. Nothing is locked, and a memory that is out of date costs a
//! round trip, never a wrong decision.

pub(crate) mod draft;
pub(crate) mod image;
pub(crate) mod journal;

pub(crate) use draft::{Assumed, Draft, Span, Write};
pub(crate) use image::{Correction, Image};

use std::sync::Arc;

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
pub(crate) trait Far: Send + Sync + 'static {
    /// Its name in messages.
    const NAME: &'static str;
}
