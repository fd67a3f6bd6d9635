//! The retry budget: retries are at most a tenth of fresh submissions plus one a second, so that an outage does not turn
//! into a retry storm.

use domain::time::Timestamp;

#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// In thousandths of a retry.
    left: u64,
    filled: Timestamp,
}

const PER_FRESH: u64 = 100;
const PER_SECOND: u64 = 1000;
const RETRY: u64 = 1000;
/// The budget saves up at most ten seconds.
const MAX: u64 = 10 * RETRY;

impl RetryBudget {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { left: MAX, filled: now }
    }

    /// `Ok` if a retry is allowed; `Err` says when one will be.
    pub(crate) fn allows(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let passed = now.millis().saturating_sub(self.filled.millis());
        self.left = self.left.saturating_add(passed.saturating_mul(PER_SECOND) / 1000).min(MAX);
        self.filled = self.filled.max(now);
        if self.left >= RETRY {
            return Ok(());
        }
        Err(Timestamp::from_millis(now.millis() + (RETRY - self.left) * 1000 / PER_SECOND))
    }

    pub(crate) fn record_fresh(&mut self) {
        self.left = (self.left + PER_FRESH).min(MAX);
    }

    pub(crate) fn record_retry(&mut self) {
        self.left = self.left.saturating_sub(RETRY);
    }

    /// A recorded retry was not sent.
    pub(crate) fn hand_back(&mut self) {
        self.left = (self.left + RETRY).min(MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_at_most_a_tenth_plus_one_a_second() {
        let mut budget = RetryBudget::new(Timestamp::default());
        let (mut fresh, mut retries) = (0, 0);
        for tick in 0..100_000 {
            let now = Timestamp::from_millis(tick * 10);
            if tick % 5 == 0 {
                budget.record_fresh();
                fresh += 1;
            }
            if budget.allows(now).is_ok() {
                budget.record_retry();
                retries += 1;
            }
        }
        let most = fresh / 10 + 1000 + 10;
        assert!(retries <= most && retries > most - 20, "{retries} of {most}");
    }

    #[test]
    fn a_refused_retry_says_when_one_is_allowed() {
        let mut budget = RetryBudget::new(Timestamp::default());
        for _ in 0..10 {
            assert!(budget.allows(Timestamp::default()).is_ok());
            budget.record_retry();
        }
        let at = budget.allows(Timestamp::default()).unwrap_err();
        assert_eq!(at, Timestamp::from_millis(1000));
        assert!(budget.allows(at).is_ok());
    }
}
