//! When the gateway polls the service.

use std::{sync::Arc, time::Duration};

use engine::{FixedPolling, LearnedConfig};

use crate::config::{
    ConfigError,
    written::{Mode, PollingKeys},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polling {
    /// For a single task.
    pub schedule: Schedule,
    /// Whether one call may ask about several tasks.
    pub batches: bool,
}

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
    pub fn start(self) -> Arc<engine::Polling> {
        match self {
            Self::Learned(config) => config.into(),
            Self::Fixed(plan) => plan.into(),
        }
    }
}

pub(super) fn check(keys: PollingKeys, most: u32, simulated: bool) -> Result<Polling, ConfigError> {
    // The simulator solves within a second or two, so polls come sooner.
    let [default, default_gap] =
        if simulated { [1000, 250] } else { [5000, 1000] }.map(Duration::from_millis);
    let min_gap = keys.min_gap.map_or(default_gap, |given| given.value.0);
    let is_timed = keys.first.is_some() || keys.interval.is_some();
    let default_mode = if is_timed { Mode::Fixed } else { Mode::Learned };
    let schedule = match keys.mode.map_or(default_mode, |mode| mode.value) {
        Mode::Learned if is_timed => {
            let what = "first and interval belong to mode = \"fixed\"; write that, or remove them";
            return Err(ConfigError::at("[polling]", what));
        }
        Mode::Learned => {
            Schedule::Learned(LearnedConfig { min_gap, most, ..LearnedConfig::default() })
        }
        Mode::Fixed => Schedule::Fixed(FixedPolling {
            first: keys.first.map_or(default, |given| given.value),
            interval: keys.interval.map_or(default, |given| given.value.0),
            min_gap,
            most,
        }),
    };
    Ok(Polling { schedule, batches: keys.batch.value })
}
