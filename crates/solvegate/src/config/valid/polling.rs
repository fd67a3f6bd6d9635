//! When tasks are asked for.

use std::{sync::Arc, time::Duration};

use engine::{FixedPolling, LearnedConfig, LearnedPolling};

use super::plain;
use crate::config::{ConfigError, raw::RawPolling};

/// When tasks are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polling {
    /// Each for itself.
    pub schedule: Schedule,
    /// Whether several may be asked for in one call.
    pub batches: bool,
}

/// When a task is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// When tasks of its kind are likely to be ready.
    Learned(LearnedConfig),
    /// At fixed times.
    Fixed(FixedPolling),
}

// === impl Schedule ===

impl Schedule {
    /// A schedule that has learned nothing yet.
    pub fn start(self) -> Arc<dyn engine::Polling> {
        match self {
            Self::Learned(config) => Arc::new(LearnedPolling::new(config)),
            Self::Fixed(plan) => plan.into(),
        }
    }
}

pub(super) fn check(raw: RawPolling, most: u32, simulated: bool) -> Result<Polling, ConfigError> {
    // The simulator solves in a second or two: a first try should be pleasant.
    let (usual, usual_gap) = if simulated { (1000, 250) } else { (5000, 1000) };
    let (usual, usual_gap) = (Duration::from_millis(usual), Duration::from_millis(usual_gap));
    let min_gap = plain::some_duration_or("[polling] min_gap", raw.min_gap, usual_gap)?;
    let is_timed = raw.first.is_some() || raw.interval.is_some();
    // Whoever says when is taken at their word.
    let usual_mode = if is_timed { "fixed" } else { "learned" };
    let schedule = match raw.mode.as_deref().unwrap_or(usual_mode) {
        "learned" if is_timed => {
            let what = "first and interval belong to mode = \"fixed\"; write that, or remove them";
            return Err(ConfigError::at("[polling]", what));
        }
        "learned" => Schedule::Learned(LearnedConfig { min_gap, most, ..LearnedConfig::default() }),
        "fixed" => Schedule::Fixed(FixedPolling {
            first: plain::duration_or("[polling] first", raw.first, usual)?,
            interval: plain::some_duration_or("[polling] interval", raw.interval, usual)?,
            min_gap,
            most,
        }),
        _ => {
            return Err(ConfigError::at("[polling] mode", "expected \"learned\" or \"fixed\""));
        }
    };
    Ok(Polling { schedule, batches: raw.batch.unwrap_or(true) })
}
