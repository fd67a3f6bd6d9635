//! The bounds of a pool: how many tokens it may hold and how many may expire unused. The configuration and the v1 API
//! both check a pool with [`PoolSize::new`].

use super::Level;

/// A valid pool size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// How many tokens the pool keeps ready.
    pub level: Level,
    /// The most tokens it may hold.
    pub most: u32,
    /// How many tokens may expire unused for every thousand served.
    pub waste: u32,
}

/// Why a pool size is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadPoolSize {
    #[error("level is not \"auto\" or from 1 to max")]
    Level,
    #[error("max is not from 1 to 1000")]
    Max,
    #[error("waste is not from 0 (none) to 1 (one token expires unused for each one served)")]
    Waste,
}

const DEFAULT_MAX: u32 = 20;
const MAX_LIMIT: u32 = 1000;
const DEFAULT_WASTE: f64 = 0.10;

impl PoolSize {
    /// Checks a size. A missing `max` is 20, a missing `waste` is 0.1.
    pub fn new(level: Level, max: Option<u32>, waste: Option<f64>) -> Result<Self, BadPoolSize> {
        let most = max.unwrap_or(DEFAULT_MAX);
        if !(1..=MAX_LIMIT).contains(&most) {
            return Err(BadPoolSize::Max);
        }
        match level {
            Level::Fixed(level) if !(1..=most).contains(&level) => return Err(BadPoolSize::Level),
            Level::Fixed(_) | Level::Auto => {}
        }
        let waste = waste.unwrap_or(DEFAULT_WASTE);
        if !(0.0..=1.0).contains(&waste) {
            return Err(BadPoolSize::Waste);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the share was just checked to be from 0 to 1"
        )]
        let waste = (waste * 1000.0).round() as u32;
        Ok(Self { level, most, waste })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_within_bounds_or_refused() {
        let usual = PoolSize { level: Level::Auto, most: 20, waste: 100 };
        assert_eq!(PoolSize::new(Level::Auto, None, None), Ok(usual));
        let size = |level, max, waste| PoolSize::new(level, Some(max), Some(waste));
        assert!(size(Level::Fixed(5), 5, 0.0).is_ok() && size(Level::Auto, 1000, 1.0).is_ok());
        for level in [0, 6] {
            assert_eq!(size(Level::Fixed(level), 5, 0.1), Err(BadPoolSize::Level));
        }
        for max in [0, 1001] {
            assert_eq!(size(Level::Auto, max, 0.1), Err(BadPoolSize::Max));
        }
        for waste in [-0.1, 1.001, f64::NAN, f64::INFINITY] {
            assert_eq!(size(Level::Auto, 5, waste), Err(BadPoolSize::Waste));
        }
    }
}
