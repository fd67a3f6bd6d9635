//! How large a pool may be, and what it may waste: the same bounds in the configuration and on v1.

use domain::pool::Level;

/// A pool's size; already valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// How many tokens are kept ready.
    pub level: Level,
    /// Never more.
    pub most: u32,
    /// Tokens that may die unused, of a thousand served.
    pub waste: u32,
}

/// Why a pool cannot be so large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPoolSize {
    /// The level is more than the maximum, or nothing.
    #[error("level is not \"auto\" or from 1 to max")]
    Level,
    /// The maximum is out of bounds.
    #[error("max is not from 1 to 1000")]
    Max,
    /// The waste is no share.
    #[error("waste is not from 0 (none) to 1 (one token dies unused for each one served)")]
    Waste,
}

const USUAL_MOST: u32 = 20;
const LARGEST: u32 = 1000;
const USUAL_WASTE: f64 = 0.10;

impl PoolSize {
    /// A size as it is written; what is not written is the usual.
    pub fn new(level: Level, max: Option<u32>, waste: Option<f64>) -> Result<Self, BadPoolSize> {
        let most = max.unwrap_or(USUAL_MOST);
        if !(1..=LARGEST).contains(&most) {
            return Err(BadPoolSize::Max);
        }
        match level {
            Level::Fixed(level) if !(1..=most).contains(&level) => return Err(BadPoolSize::Level),
            Level::Fixed(_) | Level::Auto => {}
        }
        let waste = waste.unwrap_or(USUAL_WASTE);
        if !(0.0..=1.0).contains(&waste) {
            return Err(BadPoolSize::Waste);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 1000, as was just checked"
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
