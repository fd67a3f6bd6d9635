//! Where chance comes from: ids and jitter.

use std::fmt;

/// The only source of randomness.
pub trait Chance: fmt::Debug + Send + Sync + 'static {
    /// Sixty-four fresh bits.
    fn draw(&self) -> u64;
}
