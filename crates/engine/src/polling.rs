//! When to ask for a task.

use std::{fmt, time::Duration};

/// When to ask for a task. The learned schedule will be another one of these.
pub trait Polling: fmt::Debug + Send + Sync + 'static {
    /// How long to wait before the next poll of a task that was polled `polls` times, last (or accepted) just now.
    fn gap(&self, polls: u32) -> Duration;

    /// A task is polled at most so often.
    fn most(&self) -> u32;
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

const LONGEST_GAP: Duration = Duration::from_secs(30);

impl Polling for FixedPolling {
    fn gap(&self, polls: u32) -> Duration {
        let gap = match polls {
            0 => self.first,
            n if n * 10 < self.most * 4 => self.interval,
            n if n * 10 < self.most * 7 => self.interval.saturating_mul(2),
            _ => self.interval.saturating_mul(6),
        };
        gap.clamp(self.min_gap, LONGEST_GAP.max(self.first).max(self.min_gap))
    }

    fn most(&self) -> u32 {
        self.most
    }
}

impl Default for FixedPolling {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { first: seconds(5), interval: seconds(5), min_gap: seconds(1), most: 20 }
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
