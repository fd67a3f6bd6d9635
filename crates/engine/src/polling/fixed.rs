//! The fixed schedule: the same waits for every task.

use std::time::Duration;

use super::PollQuery;

/// Polls first after `first`, then every `interval`. Later polls spread out, to twice and at last six times the interval,
/// so that `most` of them cover the longest time providers take. No gap exceeds half a minute, because a token that is
/// found later has little of its life left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPolling {
    pub first: Duration,
    pub interval: Duration,
    pub min_gap: Duration,
    pub most: u32,
}

const MAX_GAP: Duration = Duration::from_secs(30);

impl FixedPolling {
    /// The wait after `polls` polls.
    pub fn gap(&self, polls: u32) -> Duration {
        let gap = match polls {
            0 => self.first,
            n if n * 10 < self.most * 4 => self.interval,
            n if n * 10 < self.most * 7 => self.interval.saturating_mul(2),
            _ => self.interval.saturating_mul(6),
        };
        gap.clamp(self.min_gap, MAX_GAP.max(self.first).max(self.min_gap))
    }

    pub(super) fn next(&self, query: &PollQuery<'_>) -> Duration {
        let gap = self.gap(query.polls);
        if query.polls == 0 { gap.saturating_sub(query.age) } else { gap }
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
