//! The central throttle for submissions: the provider bans accounts that hammer it, and one that was away for a while is
//! not met by everything that waited for it at once.

use std::{collections::VecDeque, time::Duration};

use domain::time::Timestamp;

/// Leaves to submit: never more than so many within a second, wherever it begins.
#[derive(Debug)]
pub(crate) struct Pace {
    per_second: u32,
    /// The last leaves that were given, as many as a second may see.
    given: VecDeque<Timestamp>,
}

/// A second at the provider: what left further apart may arrive closer together.
const WINDOW: Duration = Duration::from_millis(1050);
/// After a trouble the rate rises from a tenth to the whole within this time.
const RAMP: Duration = Duration::from_secs(10);

impl Pace {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: per_second.max(1), given: VecDeque::new() }
    }

    /// Leave to submit, or when there will be one. `recovered` is when the last trouble ended.
    pub(crate) fn pass(
        &mut self,
        now: Timestamp,
        recovered: Option<Timestamp>,
    ) -> Result<(), Timestamp> {
        let again = self.window_free().max(self.ramp_free(now, recovered));
        if now < again {
            return Err(again);
        }
        self.given.push_back(now);
        if self.given.len() > as_count(self.per_second) {
            self.given.pop_front();
        }
        Ok(())
    }

    fn window_free(&self) -> Timestamp {
        let full = self.given.len() >= as_count(self.per_second);
        let oldest = self.given.front().filter(|_| full);
        oldest.map_or(Timestamp::default(), |at| at.plus(WINDOW))
    }

    /// While the rate rises, one after the other: nothing is saved up.
    fn ramp_free(&self, now: Timestamp, recovered: Option<Timestamp>) -> Timestamp {
        let since = recovered.map_or(RAMP, |at| now.since(at));
        let Some(last) = self.given.back().filter(|_| since < RAMP) else {
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
        let mut pace = Pace::new(20);
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
    fn no_second_sees_more_than_the_rate_and_three_not_more_than_the_ban_allows() {
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
