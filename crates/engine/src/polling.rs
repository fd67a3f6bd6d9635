//! When to ask for a task: the schedule the driver and step 4 go by, fixed or learned. No clock and no chance of its own.
//!
//! # Layout
//! - `cells`: time in steps of two per cent, which everything here counts in
//! - `memory`: what solves took, per family, as seen through the polls; kept over a restart
//! - `fit`, `curve`: the distribution behind what was seen
//! - `plan`: the schedule with the least lag for its polls; `learned`: who follows it
//! - [`batch`]: when one call asks for many tasks

pub mod batch;
mod cells;
mod curve;
mod fit;
mod learned;
mod memory;
mod plan;
#[cfg(test)]
mod simulation;

use std::{fmt, sync::Arc, time::Duration};

use domain::challenge::Kind;

use learned::Learned;
pub use learned::LearnedConfig;
use memory::Memory;

/// Tasks that take equally long: learned together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// What is solved.
    pub kind: Kind,
    /// Through the worker's own proxy, which is slower.
    pub proxied: bool,
}

/// What is asked when a task is to be polled (again).
#[derive(Clone, Copy, Debug)]
pub struct PollAsk<'a> {
    /// What it is learned with.
    pub family: &'a Family,
    /// How often it was polled; if ever, then just now, in vain.
    pub polls: u32,
    /// Since it was sent.
    pub age: Duration,
    /// Claims that wait for it; none: it is for stock.
    pub waiting: usize,
    /// A random number.
    pub jitter: u64,
}

/// What polling a task has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It became ready after one poll and by the next.
    Ready {
        /// Its age at the last "not ready"; zero if there was none.
        after: Duration,
        /// Its age when it was found ready.
        by: Duration,
    },
    /// It was not ready at this age, and nobody asked again.
    NotWithin(Duration),
}

/// How long the tasks of a family take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// On average.
    pub mean: Duration,
    /// One in a hundred is faster.
    pub q01: Duration,
    /// One in a hundred is slower.
    pub q99: Duration,
    /// From so many tasks; with none it is what we suppose.
    pub seen: u64,
}

/// When to ask for a task.
pub trait Polling: fmt::Debug + Send + Sync + 'static {
    /// How long from now until the task is asked for.
    fn next(&self, ask: &PollAsk<'_>) -> Duration;

    /// A task is polled at most so often.
    fn most(&self) -> u32;

    /// No two polls of a task are closer.
    fn min_gap(&self) -> Duration;

    /// Takes in what polling a task has shown.
    fn learn(&self, family: &Family, seen: Seen);

    /// The chance that a task is ready by `age`, given that it was not at the age of `asked`.
    fn chance_ready(&self, family: &Family, asked: Duration, age: Duration) -> f64;

    /// How long the family's tasks take, as far as is known.
    fn timing(&self, family: &Family) -> Timing;

    /// What was learned, to be kept over a restart: a name and some bytes for each family.
    fn save(&self) -> Vec<(String, Vec<u8>)>;

    /// Takes back what was saved. What cannot be read is left out: it is learned again.
    fn load(&self, name: &str, bytes: &[u8]);

    /// Its name for people.
    fn mode(&self) -> &'static str;
}

/// First poll after `first`, then every `interval`; later polls spread out, to twice and at last six times the interval,
/// so that `most` of them cover what providers take at the longest. Never over half a minute: a token found later than
/// that has little of its life left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPolling {
    /// Wait before the first poll.
    pub first: Duration,
    /// Wait between polls.
    pub interval: Duration,
    /// No two polls of a task are closer.
    pub min_gap: Duration,
    /// At most so many.
    pub most: u32,
}

/// A schedule, and the memory of what tasks took.
#[derive(Debug)]
pub struct Remembering<S> {
    schedule: S,
    memory: Memory,
}

/// The fixed schedule; it remembers what tasks take only to tell others.
pub type Fixed = Remembering<FixedPolling>;

/// Learns how long tasks take, and polls so that the lag is least for the polls it costs.
pub type LearnedPolling = Remembering<Learned>;

/// When to ask, given what was learned so far.
trait Schedule: fmt::Debug + Send + Sync + 'static {
    fn next(&self, ask: &PollAsk<'_>, memory: &Memory) -> Duration;
    fn most(&self) -> u32;
    fn min_gap(&self) -> Duration;
    fn mode(&self) -> &'static str;
}

const LONGEST_GAP: Duration = Duration::from_secs(30);

// === impl FixedPolling ===

impl FixedPolling {
    /// The wait after so many polls.
    pub fn gap(&self, polls: u32) -> Duration {
        let gap = match polls {
            0 => self.first,
            n if n * 10 < self.most * 4 => self.interval,
            n if n * 10 < self.most * 7 => self.interval.saturating_mul(2),
            _ => self.interval.saturating_mul(6),
        };
        gap.clamp(self.min_gap, LONGEST_GAP.max(self.first).max(self.min_gap))
    }
}

impl Default for FixedPolling {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { first: seconds(5), interval: seconds(5), min_gap: seconds(1), most: 20 }
    }
}

impl From<FixedPolling> for Arc<dyn Polling> {
    fn from(plan: FixedPolling) -> Self {
        Arc::new(Fixed::new(plan))
    }
}

impl Schedule for FixedPolling {
    fn next(&self, ask: &PollAsk<'_>, _: &Memory) -> Duration {
        let gap = self.gap(ask.polls);
        if ask.polls == 0 { gap.saturating_sub(ask.age) } else { gap }
    }

    fn most(&self) -> u32 {
        self.most
    }

    fn min_gap(&self) -> Duration {
        self.min_gap
    }

    fn mode(&self) -> &'static str {
        "fixed"
    }
}

// === impl Remembering ===

impl Fixed {
    /// Nothing remembered yet.
    pub fn new(schedule: FixedPolling) -> Self {
        Self { schedule, memory: Memory::default() }
    }
}

impl LearnedPolling {
    /// Nothing learned yet.
    pub fn new(config: LearnedConfig) -> Self {
        Self { schedule: Learned::new(config), memory: Memory::default() }
    }
}

impl<S: Schedule> Polling for Remembering<S> {
    fn next(&self, ask: &PollAsk<'_>) -> Duration {
        self.schedule.next(ask, &self.memory)
    }

    fn most(&self) -> u32 {
        self.schedule.most()
    }

    fn min_gap(&self) -> Duration {
        self.schedule.min_gap()
    }

    fn learn(&self, family: &Family, seen: Seen) {
        self.memory.learn(family, seen);
    }

    fn chance_ready(&self, family: &Family, asked: Duration, age: Duration) -> f64 {
        self.memory.read(family, |times| times.fit().curve.chance(asked, age))
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

    fn mode(&self) -> &'static str {
        self.schedule.mode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_polls_cover_what_providers_take_and_none_comes_too_late() {
        let polling = FixedPolling::default();
        let gaps: Vec<Duration> = (0..polling.most).map(|n| polling.gap(n)).collect();
        assert!(gaps.iter().sum::<Duration>() >= Duration::from_secs(270), "{gaps:?}");
        assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(30)));
        assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]), "never faster again");
    }
}
