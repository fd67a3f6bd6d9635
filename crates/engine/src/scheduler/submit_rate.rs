//! Rate limiter for submissions. The provider bans accounts that send too many, and a provider that was down is not hit
//! by everything that waited for it at once.

use std::{collections::VecDeque, time::Duration};

use domain::time::Timestamp;

/// At most `per_second` submissions in any second, wherever it begins.
#[derive(Debug)]
pub(crate) struct SubmitRate {
    per_second: u32,
    /// The last `per_second` submissions.
    passed: VecDeque<Timestamp>,
}

/// A second at the provider. Requests that leave a second apart may arrive closer together.
const WINDOW: Duration = Duration::from_millis(1050);
/// After a circuit breaker has closed, the rate rises from a tenth to the whole within this time.
const RAMP: Duration = Duration::from_secs(10);

impl SubmitRate {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: per_second.max(1), passed: VecDeque::new() }
    }

    /// Allows one submission, or says when. `recovered` is when the last circuit breaker closed.
    pub(crate) fn pass(
        &mut self,
        now: Timestamp,
        recovered: Option<Timestamp>,
    ) -> Result<(), Timestamp> {
        let again = self.window_free().max(self.ramp_free(now, recovered));
        if now < again {
            return Err(again);
        }
        self.passed.push_back(now);
        if self.passed.len() > as_count(self.per_second) {
            self.passed.pop_front();
        }
        Ok(())
    }

    fn window_free(&self) -> Timestamp {
        let full = self.passed.len() >= as_count(self.per_second);
        let oldest = self.passed.front().filter(|_| full);
        oldest.map_or(Timestamp::default(), |at| at.plus(WINDOW))
    }

    /// While the rate rises, submissions are evenly spaced.
    fn ramp_free(&self, now: Timestamp, recovered: Option<Timestamp>) -> Timestamp {
        let since = recovered.map_or(RAMP, |at| now.since(at));
        let Some(last) = self.passed.back().filter(|_| since < RAMP) else {
            return Timestamp::default();
        };
        let part = (since.as_secs_f64() / RAMP.as_secs_f64()).max(0.1);
        last.plus(Duration::from_secs(1).div_f64(f64::from(self.per_second) * part))
    }
}

fn as_count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(from: u64, to: u64, recovered: Option<Timestamp>) -> Vec<Timestamp> {
        let mut now = Timestamp::from_millis(from);
        let mut rate = SubmitRate::new(20);
        let mut passed = Vec::new();
        while now < Timestamp::from_millis(to) {
            match rate.pass(now, recovered) {
                Ok(()) => passed.push(now),
                Err(at) => now = at,
            }
        }
        passed
    }

    #[test]
    fn any_second_has_at_most_the_rate_and_any_three_stay_below_the_ban() {
        let passed = passed(0, 10_000, None);
        assert!((190..=200).contains(&passed.len()), "{}", passed.len());
        let within = |millis| {
            let follows = |from: Timestamp, at: &Timestamp| {
                *at >= from && at.since(from).as_millis() < millis
            };
            let count = |from: &Timestamp| passed.iter().filter(|at| follows(*from, at)).count();
            passed.iter().map(count).max()
        };
        assert_eq!(within(1000), Some(20), "at once, then nothing for a second");
        assert_eq!(
            within(3100),
            Some(60),
            "also when the ways there differ by a tenth of a second"
        );
    }

    #[test]
    fn after_an_outage_the_rate_rises_from_a_tenth() {
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
