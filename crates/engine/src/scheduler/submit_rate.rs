//! Rate limiter for submissions. The provider bans accounts that send too many, and a provider that was down is not hit
//! by everything that waited for it at once.
//!
//! The rate is the account's. Of several gateways each has a share (`account_share.rs`), which is lowered at once and raised
//! a window later: by then the submissions of the gateway that gave are out of every window.

use std::{collections::VecDeque, time::Duration};

use domain::{account_share::WHOLE, time::Timestamp};

/// At most the share of `per_second` submissions in any second, wherever it begins.
#[derive(Debug)]
pub(crate) struct SubmitRate {
    /// The rate of the whole account.
    per_second: u32,
    /// Shares, and from when on they are obeyed. The last one whose time has come is in force.
    shares: VecDeque<(Timestamp, u32)>,
    /// The last `per_second` submissions.
    passed: VecDeque<Timestamp>,
}

/// A second at the provider. Requests that leave a second apart may arrive closer together.
const WINDOW: Duration = Duration::from_millis(1050);
/// After a circuit breaker has closed, the rate rises from a tenth to the whole within this time.
const RAMP: Duration = Duration::from_secs(10);

impl SubmitRate {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: per_second.max(1), shares: VecDeque::new(), passed: VecDeque::new() }
    }

    /// Obeys a share from the next moment at which no window has submissions of those who had it before.
    pub(crate) fn set_share(&mut self, share: u32, now: Timestamp) {
        if self.shares.is_empty() {
            // The first share. Without other gateways there is nothing to wait for.
            self.shares.push_back((now, if share == WHOLE { WHOLE } else { 0 }));
        }
        for (_, earlier) in &mut self.shares {
            *earlier = share.min(*earlier);
        }
        if self.shares.back().is_some_and(|(_, last)| *last < share) {
            self.shares.push_back((now.plus(WINDOW), share));
        }
        self.drop_past(now);
    }

    /// The rate of the whole account.
    pub(crate) fn per_second(&self) -> u32 {
        self.per_second
    }

    /// The most that is allowed until the share is set again.
    pub(crate) fn most_in_force(&self) -> u32 {
        self.shares.back().map_or(self.per_second, |(_, share)| self.per_second.min(*share))
    }

    /// How many submissions have passed within the last window.
    pub(crate) fn passed_lately(&self, now: Timestamp) -> usize {
        self.passed.iter().rev().take_while(|at| now < at.plus(WINDOW)).count()
    }

    fn drop_past(&mut self, now: Timestamp) {
        while self.shares.get(1).is_some_and(|(from, _)| *from <= now) {
            self.shares.pop_front();
        }
    }

    /// The submissions allowed in a window now; or, with none, when that may change.
    fn allowed(&mut self, now: Timestamp) -> Result<u32, Timestamp> {
        self.drop_past(now);
        match self.shares.front() {
            Some((_, 0)) => Err(self.shares.get(1).map_or(now.plus(WINDOW), |(from, _)| *from)),
            Some((_, share)) => Ok(self.per_second.min(*share)),
            None => Ok(self.per_second),
        }
    }

    /// Allows one submission, or says when. `recovered` is when the last circuit breaker closed.
    pub(crate) fn pass(
        &mut self,
        now: Timestamp,
        recovered: Option<Timestamp>,
    ) -> Result<(), Timestamp> {
        let allowed = self.allowed(now)?;
        let again = self.window_free(allowed).max(self.ramp_free(allowed, now, recovered));
        if now < again {
            return Err(again);
        }
        self.passed.push_back(now);
        if self.passed.len() > as_count(self.per_second) {
            self.passed.pop_front();
        }
        Ok(())
    }

    /// A submission that passed at this time is not sent.
    pub(crate) fn hand_back(&mut self, passed_at: Timestamp) {
        if let Some(place) = self.passed.iter().rposition(|at| *at == passed_at) {
            self.passed.remove(place);
        }
    }

    fn window_free(&self, allowed: u32) -> Timestamp {
        let first = self.passed.len().checked_sub(as_count(allowed));
        let first = first.and_then(|first| self.passed.get(first));
        first.map_or(Timestamp::default(), |at| at.plus(WINDOW))
    }

    /// While the rate rises, submissions are evenly spaced.
    fn ramp_free(&self, allowed: u32, now: Timestamp, recovered: Option<Timestamp>) -> Timestamp {
        let since = recovered.map_or(RAMP, |at| now.since(at));
        let Some(last) = self.passed.back().filter(|_| since < RAMP) else {
            return Timestamp::default();
        };
        let part = (since.as_secs_f64() / RAMP.as_secs_f64()).max(0.1);
        last.plus(Duration::from_secs(1).div_f64(f64::from(allowed) * part))
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

    /// Two gateways that send without end while shares move between them, each told at its own renewals.
    #[test]
    fn what_one_gateway_gives_another_gets_without_a_second_above_the_rate() {
        let mut rates = [SubmitRate::new(20), SubmitRate::new(20)];
        rates[0].set_share(WHOLE, Timestamp::from_millis(0));
        rates[1].set_share(0, Timestamp::from_millis(0));
        // At this time, this gateway has this share.
        let told = [
            (3000, 0, 7),
            (3001, 1, 13),
            (4200, 1, 5),
            (4201, 0, 15),
            (4800, 0, 3),
            (4900, 1, 17),
            (5500, 1, 0),
            (5500, 0, 10),
            (5600, 0, 20),
        ];
        let mut passed = Vec::new();
        for now in 0..9000 {
            for (_, gateway, share) in told.iter().filter(|(at, ..)| *at == now) {
                rates[*gateway].set_share(*share, Timestamp::from_millis(now));
            }
            let now = Timestamp::from_millis(now);
            for rate in &mut rates {
                passed.extend(std::iter::from_fn(|| rate.pass(now, None).ok().map(|()| now)));
            }
        }
        for from in &passed {
            let window = passed.iter().filter(|at| *at >= from && at.since(*from) < WINDOW);
            assert!(window.count() <= 20, "from {from}");
        }
        assert_eq!((rates[0].most_in_force(), rates[1].most_in_force()), (20, 0));
        assert!(passed.len() > 120, "{}", passed.len());
    }

    #[test]
    fn what_was_not_sent_leaves_its_place_to_the_next() {
        let at = Timestamp::from_millis;
        let mut rate = SubmitRate::new(2);
        assert_eq!((rate.pass(at(0), None), rate.pass(at(5), None)), (Ok(()), Ok(())));
        assert_eq!(rate.pass(at(10), None), Err(at(1050)));
        rate.hand_back(at(5));
        rate.hand_back(at(7));
        assert_eq!(rate.pass(at(10), None), Ok(()));
        assert_eq!(rate.pass(at(20), None), Err(at(1050)));
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
