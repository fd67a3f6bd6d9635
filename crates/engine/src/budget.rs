//! The retry budget: retries are at most a tenth of fresh submissions and one a second, so that an outage is not met
//! with a storm.

use domain::time::Timestamp;

/// Leaves to submit something once more.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// Thousandths of a leave.
    left: u64,
    filled: Timestamp,
}

/// What a fresh submission adds.
const PER_FRESH: u64 = 100;
/// What a second adds.
const PER_SECOND: u64 = 1000;
/// What a retry takes.
const RETRY: u64 = 1000;
/// No more is saved up: what was not used in ten seconds is gone.
const MOST: u64 = 10 * RETRY;

impl RetryBudget {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { left: MOST, filled: now }
    }

    /// Whether there is leave for a retry; `Err` says when there will be.
    pub(crate) fn allows(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let passed = now.millis().saturating_sub(self.filled.millis());
        self.left = self.left.saturating_add(passed.saturating_mul(PER_SECOND) / 1000).min(MOST);
        self.filled = self.filled.max(now);
        if self.left >= RETRY {
            return Ok(());
        }
        Err(Timestamp::from_millis(now.millis() + (RETRY - self.left) * 1000 / PER_SECOND))
    }

    /// A fresh submission was made.
    pub(crate) fn fresh(&mut self) {
        self.left = (self.left + PER_FRESH).min(MOST);
    }

    /// A retry was made.
    pub(crate) fn retried(&mut self) {
        self.left = self.left.saturating_sub(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_tenth_and_one_a_second() {
        let mut budget = RetryBudget::new(Timestamp::default());
        let (mut fresh, mut retries) = (0, 0);
        for tick in 0..100_000 {
            let now = Timestamp::from_millis(tick * 10);
            if tick % 5 == 0 {
                budget.fresh();
                fresh += 1;
            }
            if budget.allows(now).is_ok() {
                budget.retried();
                retries += 1;
            }
        }
        let most = fresh / 10 + 1000 + 10;
        assert!(retries <= most && retries > most - 20, "{retries} of {most}");
    }

    #[test]
    fn it_says_when_there_will_be_leave() {
        let mut budget = RetryBudget::new(Timestamp::default());
        for _ in 0..10 {
            assert!(budget.allows(Timestamp::default()).is_ok());
            budget.retried();
        }
        let at = budget.allows(Timestamp::default()).unwrap_err();
        assert_eq!(at, Timestamp::from_millis(1000));
        assert!(budget.allows(at).is_ok());
    }
}
