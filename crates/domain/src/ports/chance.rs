//! Where randomness comes from: ids and jitter. A port, so that a simulation repeats a run from its seed.

use std::fmt;

/// The only source of randomness.
pub trait Chance: fmt::Debug + Send + Sync + 'static {
    /// Sixty-four random bits.
    fn draw(&self) -> u64;
}
