//! The interface of a polling schedule. A schedule has no clock and no randomness of its own.

use std::{fmt, time::Duration};

use domain::challenge::{Challenge, Kind};

use super::learned::memory::SolveTimeMemory;

/// Tasks that take equally long and are learned together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// The kind of challenge.
    pub kind: Kind,
    /// Solved through the worker's own proxy, which is slower.
    pub proxied: bool,
}

/// The question when a task is to be polled next.
#[derive(Clone, Copy, Debug)]
pub struct PollQuery<'a> {
    /// The task's family.
    pub family: &'a Family,
    /// Polls so far. If there was one, the last was just now and found nothing.
    pub polls: u32,
    /// The time since it was sent.
    pub age: Duration,
    /// The claims that wait for it; with none it is for stock.
    pub waiting: usize,
    /// A random number.
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
    /// The average.
    pub mean: Duration,
    /// One in a hundred is faster.
    pub q01: Duration,
    /// One in a hundred is slower.
    pub q99: Duration,
    /// The number of tasks this is learned from; with none it is an assumption.
    pub seen: u64,
}

/// Decides when a task is polled.
pub trait Polling: fmt::Debug + Send + Sync + 'static {
    /// How long from now until the next poll.
    fn next(&self, query: &PollQuery<'_>) -> Duration;

    /// The most polls of one task.
    fn most(&self) -> u32;

    /// The least time between two polls of one task.
    fn min_gap(&self) -> Duration;

    /// Whether tasks may be polled in batches instead, at other times than this schedule's.
    fn allows_batches(&self) -> bool;

    /// Learns from what polling a task has shown.
    fn learn(&self, family: &Family, seen: Observation);

    /// The chance that a task is ready by `age`, given that it was not at the age of `polled_at`.
    fn chance_ready(&self, family: &Family, polled_at: Duration, age: Duration) -> f64;

    /// How long the family's tasks take, as far as is known.
    fn timing(&self, family: &Family) -> Timing;

    /// Everything learned, as a name and some bytes for each family.
    fn save(&self) -> Vec<(String, Vec<u8>)>;

    /// Restores what was saved. Unreadable bytes are ignored: the family is learned again.
    fn load(&self, name: &str, bytes: &[u8]);
}

/// A schedule with the memory of what tasks took.
#[derive(Debug)]
pub struct WithMemory<S> {
    schedule: S,
    memory: SolveTimeMemory,
}

/// When to poll, given what was learned so far.
pub(super) trait Schedule: fmt::Debug + Send + Sync + 'static {
    fn next(&self, query: &PollQuery<'_>, memory: &SolveTimeMemory) -> Duration;
    fn most(&self) -> u32;
    fn min_gap(&self) -> Duration;
    fn allows_batches(&self) -> bool;
}

// === impl Family ===

impl Family {
    pub(crate) fn of(kind: &Kind, challenge: &Challenge) -> Self {
        Self { kind: kind.clone(), proxied: challenge.params().contains_key("proxy") }
    }
}

// === impl WithMemory ===

impl<S> WithMemory<S> {
    pub(super) fn from_schedule(schedule: S) -> Self {
        Self { schedule, memory: SolveTimeMemory::default() }
    }
}

impl<S: Schedule> Polling for WithMemory<S> {
    fn next(&self, query: &PollQuery<'_>) -> Duration {
        self.schedule.next(query, &self.memory)
    }

    fn most(&self) -> u32 {
        self.schedule.most()
    }

    fn min_gap(&self) -> Duration {
        self.schedule.min_gap()
    }

    fn allows_batches(&self) -> bool {
        self.schedule.allows_batches()
    }

    fn learn(&self, family: &Family, seen: Observation) {
        self.memory.learn(family, seen);
    }

    fn chance_ready(&self, family: &Family, polled_at: Duration, age: Duration) -> f64 {
        self.memory.chance_ready(family, polled_at, age)
    }

    fn timing(&self, family: &Family) -> Timing {
        self.memory.timing(family)
    }

    fn save(&self) -> Vec<(String, Vec<u8>)> {
        self.memory.save()
    }

    fn load(&self, name: &str, bytes: &[u8]) {
        self.memory.load(name, bytes);
    }
}
