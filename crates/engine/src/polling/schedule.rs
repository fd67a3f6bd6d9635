//! A polling schedule and what it is asked and told. It has no clock and no randomness of its own.

use std::{sync::Arc, time::Duration};

use domain::challenge::{Challenge, Kind};

use super::{
    FixedPolling, LearnedConfig,
    learned::{Learned, memory::SolveTimeMemory},
};

/// Tasks that take equally long and are learned together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    pub kind: Kind,
    /// Solved through the worker's own proxy, which is slower.
    pub proxied: bool,
}

/// The question when a task is to be polled next.
#[derive(Clone, Copy, Debug)]
pub struct PollQuery<'a> {
    pub family: &'a Family,
    /// Polls so far. If there was one, the last was just now and found nothing.
    pub polls: u32,
    pub age: Duration,
    /// The claims that wait for it; with none it is for stock.
    pub waiting: usize,
    pub jitter: u64,
}

/// What polling a task has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// It became ready between two polls.
    Ready {
        /// Its age at the last "not ready"; zero if there was none.
        after: Duration,
        /// Its age when it was found ready.
        by: Duration,
    },
    /// It was not ready at this age and was not polled again.
    NotWithin(Duration),
}

/// How long the tasks of a family take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub mean: Duration,
    /// One in a hundred is faster.
    pub q01: Duration,
    /// One in a hundred is slower.
    pub q99: Duration,
    /// The number of tasks this is learned from; with none it is an assumption.
    pub seen: u64,
}

/// Decides when a task is polled.
#[derive(Debug)]
pub struct Polling {
    /// The most polls of one task.
    pub most: u32,
    /// The least time between two polls of one task.
    pub min_gap: Duration,
    /// How long tasks took. With the fixed schedule it is only for others, such as pools.
    pub memory: SolveTimeMemory,
    schedule: Schedule,
}

#[derive(Debug)]
enum Schedule {
    Fixed(FixedPolling),
    Learned(Learned),
}

// === impl Family ===

impl Family {
    pub(crate) fn of(kind: &Kind, challenge: &Challenge) -> Self {
        Self { kind: kind.clone(), proxied: challenge.params().contains_key("proxy") }
    }
}

// === impl Polling ===

impl Polling {
    /// How long from now until the next poll.
    pub fn next(&self, query: &PollQuery<'_>) -> Duration {
        match &self.schedule {
            Schedule::Fixed(fixed) => fixed.next(query),
            Schedule::Learned(learned) => learned.next(query, &self.memory),
        }
    }

    /// Whether tasks may be polled in batches instead, at other times than this schedule's. An operator who chooses fixed
    /// times gets these times.
    pub(crate) fn allows_batches(&self) -> bool {
        matches!(self.schedule, Schedule::Learned(_))
    }
}

impl From<FixedPolling> for Arc<Polling> {
    fn from(fixed: FixedPolling) -> Self {
        let FixedPolling { most, min_gap, .. } = fixed;
        let (memory, schedule) = (SolveTimeMemory::default(), Schedule::Fixed(fixed));
        Self::new(Polling { most, min_gap, memory, schedule })
    }
}

/// A schedule that has learned nothing yet.
impl From<LearnedConfig> for Arc<Polling> {
    fn from(config: LearnedConfig) -> Self {
        let LearnedConfig { most, min_gap, .. } = config;
        let (memory, schedule) =
            (SolveTimeMemory::default(), Schedule::Learned(Learned::new(config)));
        Self::new(Polling { most, min_gap, memory, schedule })
    }
}
