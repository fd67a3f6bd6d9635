//! The central throttle for submissions: the provider bans accounts that hammer it, and one that was away for a while is
//! not met by everything that waited for it at once.

use std::time::Duration;

use domain::time::Timestamp;

/// A bucket of leaves to submit: it holds one second's worth and refills evenly.
#[derive(Debug)]
pub(crate) struct Pace {
    per_second: u64,
    /// Thousandths of a leave.
    left: u64,
    filled: Timestamp,
}

/// After a trouble the rate rises from a tenth to the whole within this time.
const RAMP: Duration = Duration::from_secs(10);

impl Pace {
    pub(crate) fn new(per_second: u32, now: Timestamp) -> Self {
        let per_second = u64::from(per_second.max(1));
        Self { per_second, left: per_second * 1000, filled: now }
    }

    /// Leave to submit, or when there will be one. `recovered` is when the last trouble ended.
    pub(crate) fn pass(
        &mut self,
        now: Timestamp,
        recovered: Option<Timestamp>,
    ) -> Result<(), Timestamp> {
        let passed = now.millis().saturating_sub(self.filled.millis());
        let (rate, full) = self.rate(now, recovered);
        // Thousandths of a leave in thousandths of a second: the rate is per thousand seconds.
        let credit = passed.saturating_mul(rate) / 1000;
        if credit > 0 {
            self.left = self.left.saturating_add(credit);
            self.filled = now;
        }
        self.left = self.left.min(full);
        if self.left >= 1000 {
            self.left -= 1000;
            return Ok(());
        }
        let missing = ((1000 - self.left) * 1000).div_ceil(rate).max(1);
        Err(Timestamp::from_millis(now.millis() + missing))
    }

    /// Leaves per thousand seconds, and how much may be saved up: nothing while the rate rises.
    fn rate(&self, now: Timestamp, recovered: Option<Timestamp>) -> (u64, u64) {
        let whole = self.per_second * 1000;
        let since = recovered.map_or(RAMP, |at| now.since(at));
        if since >= RAMP {
            return (whole, whole);
        }
        let part = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let ramp = u64::try_from(RAMP.as_millis()).unwrap_or(u64::MAX);
        ((whole * part / ramp).max(whole / 10).max(1), 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(from: u64, to: u64, recovered: Option<Timestamp>) -> Vec<Timestamp> {
        let mut now = Timestamp::from_millis(from);
        let mut pace = Pace::new(20, now);
        let mut passed = Vec::new();
        while now < Timestamp::from_millis(to) {
            match pace.pass(now, recovered) {
                Ok(()) => passed.push(now),
                Err(at) => now = at,
            }
        }
        passed
    }

    #[test]
    fn no_second_sees_more_than_twice_the_rate_and_the_mean_holds() {
        let passed = passed(0, 10_000, None);
        assert!((200..=221).contains(&passed.len()), "{}", passed.len());
        let within = |from: &Timestamp| {
            passed.iter().filter(|at| at.since(*from).as_millis() < 1000 && *at >= from).count()
        };
        assert!(
            passed.iter().map(within).max() <= Some(40),
            "twice the rate in one second, at most"
        );
    }

    #[test]
    fn after_a_trouble_the_rate_rises_from_a_tenth() {
        let passed = passed(1000, 21_000, Some(Timestamp::from_millis(1000)));
        let per_second = |second: u64| {
            let first = 1000 + second * 1000;
            passed.iter().filter(|at| (first..first + 1000).contains(&at.millis())).count()
        };
        assert!(per_second(0) <= 4, "{}", per_second(0));
        assert!((8..=12).contains(&per_second(5)), "{}", per_second(5));
        assert!((18..=22).contains(&per_second(15)), "{}", per_second(15));
        for second in 1..9 {
            assert!(per_second(second) + 2 >= per_second(second - 1), "{second}");
        }
    }
}
