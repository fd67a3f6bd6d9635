//! The central throttle for submissions: the provider bans accounts that hammer it.

use domain::time::Timestamp;

/// A bucket of leaves to submit: it holds one second's worth and refills evenly.
#[derive(Debug)]
pub(crate) struct Pace {
    per_second: u64,
    /// Thousandths of a leave.
    left: u64,
    filled: Timestamp,
}

impl Pace {
    pub(crate) fn new(per_second: u32, now: Timestamp) -> Self {
        let per_second = u64::from(per_second.max(1));
        Self { per_second, left: per_second * 1000, filled: now }
    }

    /// Leave to submit, or when there will be one.
    pub(crate) fn pass(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let passed = now.millis().saturating_sub(self.filled.millis());
        let full = self.per_second * 1000;
        self.left = self.left.saturating_add(passed.saturating_mul(self.per_second)).min(full);
        self.filled = now;
        if self.left >= 1000 {
            self.left -= 1000;
            return Ok(());
        }
        let missing = (1000 - self.left).div_ceil(self.per_second).max(1);
        Err(Timestamp::from_millis(now.millis() + missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_sees_more_than_twice_the_rate_and_the_mean_holds() {
        let mut now = Timestamp::default();
        let mut pace = Pace::new(20, now);
        let mut passed = Vec::new();
        while now < Timestamp::from_millis(10_000) {
            match pace.pass(now) {
                Ok(()) => passed.push(now),
                Err(at) => now = at,
            }
        }
        assert!((200..=221).contains(&passed.len()), "{}", passed.len());
        let within = |from: &Timestamp| {
            passed.iter().filter(|at| at.since(*from).as_millis() < 1000 && *at >= from).count()
        };
        assert!(
            passed.iter().map(within).max() <= Some(40),
            "twice the rate in one second, at most"
        );
    }
}
