//! How many tasks the provider works on for us at once, and how many of those places are taken. Told by the provider
//! where it tells, learned from its refusals where it does not.
//!
//! A refusal for want of a slot is exact news: with `n` of our tasks accepted, `n` is what there is. So the estimate goes
//! down to `n` at once; up it goes by one at a time, and after a refusal only now and then.

use std::{sync::Mutex, time::Duration};

use domain::{ports::Threads, time::Timestamp};

/// Tasks under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// As many as the account has threads; learned from refusals when the provider does not tell.
    Auto,
    /// So many. 0 is for reading only: nothing is submitted.
    Fixed(usize),
}

/// The places at the provider.
#[derive(Debug)]
pub(crate) struct Places(Mutex<State>);

#[derive(Clone, Debug)]
struct State {
    /// Never more than this: configured, told, or as far as we would ever learn.
    most: usize,
    /// The estimate.
    limit: usize,
    /// Submissions under way and tasks at the provider.
    used: usize,
    /// Submissions under way.
    pending: usize,
    /// Whether every task accepted at the limit makes room for one more.
    growing: bool,
    /// Refusals since the last task was accepted; those of one burst are one.
    refusals: u32,
    last_refusal: Timestamp,
    /// No submission before then.
    hold_until: Timestamp,
    /// Not one more than the limit before then.
    raise_at: Timestamp,
    /// How long after a refusal one more is tried.
    raise_wait: Duration,
}

/// What an unknown account is believed to have at first.
const AT_FIRST: usize = 5;
/// How long the first answer about an account's threads is waited for.
const FIRST_ASK: Duration = Duration::from_secs(3);
/// No estimate goes beyond this.
const MOST: usize = 1000;
const RAISE_WAIT: Duration = Duration::from_secs(30);
const LONGEST_RAISE_WAIT: Duration = Duration::from_secs(300);
/// With nothing of ours there, others have all threads: how long to leave the provider alone, doubling.
const FIRST_HOLD: Duration = Duration::from_secs(2);
const LONGEST_HOLD: Duration = Duration::from_secs(60);

// === impl Places ===

impl Places {
    /// Nobody knows yet what an account has: it is asked first, so nothing is submitted for a moment.
    pub(crate) fn new(slots: Slots, now: Timestamp) -> Self {
        let (most, limit, hold_until) = match slots {
            Slots::Auto => (MOST, AT_FIRST, now.plus(FIRST_ASK)),
            Slots::Fixed(slots) => (slots, slots, now),
        };
        Self(Mutex::new(State {
            most,
            limit,
            used: 0,
            pending: 0,
            growing: true,
            refusals: 0,
            last_refusal: Timestamp::default(),
            hold_until,
            raise_at: Timestamp::default(),
            raise_wait: RAISE_WAIT,
        }))
    }

    /// Whether there is a place; `Err` says when to look again, should it be time alone that helps.
    pub(crate) fn is_free(&self, now: Timestamp) -> Result<(), Option<Timestamp>> {
        let state = self.lock();
        let may_raise = state.limit < state.most && !state.growing;
        if now < state.hold_until {
            Err(Some(state.hold_until))
        } else if state.used < state.limit || (may_raise && state.may_raise(now)) {
            Ok(())
        } else {
            Err(Some(state.raise_at).filter(|at| may_raise && now < *at))
        }
    }

    /// A submission takes a place.
    pub(crate) fn take(&self, now: Timestamp) {
        let mut state = self.lock();
        if state.used >= state.limit && state.may_raise(now) {
            state.limit = (state.limit + 1).min(state.most);
            state.growing = true;
        }
        state.used += 1;
        state.pending += 1;
    }

    /// A task of ours that is at the provider already takes a place, wanted or not.
    pub(crate) fn occupy(&self) {
        self.lock().used += 1;
    }

    /// A task is over.
    pub(crate) fn give_back(&self) {
        let mut state = self.lock();
        state.used = state.used.saturating_sub(1);
    }

    /// A submission is over, whatever came of it; a task that came of it takes its place anew.
    pub(crate) fn submitted(&self) {
        let mut state = self.lock();
        state.used = state.used.saturating_sub(1);
        state.pending = state.pending.saturating_sub(1);
    }

    /// The provider took a submission.
    pub(crate) fn accepted(&self) {
        let mut state = self.lock();
        state.refusals = 0;
        state.hold_until = Timestamp::default();
        // A refusal may have been read before the acceptances it came after.
        let proven = state.used.saturating_sub(state.pending) + 1;
        state.limit = state.limit.max(proven.min(state.most));
        if state.growing && state.used >= state.limit && state.limit < state.most {
            state.limit += 1;
            state.raise_wait = RAISE_WAIT;
        }
    }

    /// The provider had no slot for a submission that left then.
    pub(crate) fn refused(&self, sent_at: Timestamp, now: Timestamp) {
        let mut state = self.lock();
        let accepted = state.used.saturating_sub(state.pending);
        if state.growing && state.raise_at > Timestamp::default() {
            state.raise_wait = (state.raise_wait * 2).min(LONGEST_RAISE_WAIT);
        }
        state.growing = false;
        state.limit = accepted.clamp(1, state.limit.max(1));
        state.raise_at = now.plus(state.raise_wait);
        if sent_at <= state.last_refusal {
            // It left with others of its burst: no further news.
            return;
        }
        state.last_refusal = now;
        let doublings = if accepted == 0 { state.refusals } else { state.refusals.max(1) - 1 };
        if accepted == 0 || state.refusals > 0 {
            let hold = FIRST_HOLD.saturating_mul(2u32.saturating_pow(doublings.min(10)));
            state.hold_until = now.plus(hold.min(LONGEST_HOLD));
        }
        state.refusals = state.refusals.saturating_add(1);
        tracing::info!(limit = state.limit, "provider had no free slot, lowering the slot limit");
    }

    /// The provider told its threads. What others use of them is not ours.
    pub(crate) fn told(&self, threads: Threads) {
        let Ok(total) = usize::try_from(threads.total) else { return };
        let working = usize::try_from(threads.working).unwrap_or(usize::MAX);
        let mut state = self.lock();
        let others = working.saturating_sub(state.used);
        let limit = total.min(MOST).saturating_sub(others);
        if limit != state.limit {
            tracing::info!(total, working, limit, "provider reported its threads");
        }
        state.most = total.min(MOST);
        state.limit = limit;
        state.growing = false;
        if limit > 0 {
            state.refusals = 0;
            state.hold_until = Timestamp::default();
        }
        // What is told changes by the next telling, not by trying.
        state.raise_at = Timestamp::from_millis(u64::MAX);
    }

    /// The provider does not tell: its refusals will.
    pub(crate) fn not_told(&self) {
        let mut state = self.lock();
        if state.refusals == 0 {
            state.hold_until = Timestamp::default();
        }
        // It told that others have everything, and tells no more: one is tried now and then.
        state.limit = state.limit.max(state.most.min(1));
    }

    /// The estimate.
    pub(crate) fn limit(&self) -> usize {
        self.lock().limit
    }

    /// Submissions under way and tasks at the provider.
    pub(crate) fn used(&self) -> usize {
        self.lock().used
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no holder of this lock can panic")
    }
}

// === impl State ===

impl State {
    fn may_raise(&self, now: Timestamp) -> bool {
        !self.growing && self.limit < self.most && self.used == self.limit && now >= self.raise_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1000)
    }

    /// A provider with so many threads; takes what it can and says how many it refused.
    fn fill(places: &Places, threads: usize, running: &mut usize, now: Timestamp) -> usize {
        let mut refused = 0;
        while places.is_free(now).is_ok() && refused < 50 {
            places.take(now);
            if *running < threads {
                places.accepted();
                places.submitted();
                places.occupy();
                *running += 1;
            } else {
                places.refused(now, now);
                places.submitted();
                refused += 1;
            }
        }
        refused
    }

    fn finish(places: &Places, running: &mut usize) {
        if *running > 0 {
            places.give_back();
            *running -= 1;
        }
    }

    #[test]
    fn an_unknown_number_of_threads_is_found_with_few_refusals_and_followed() {
        let places = Places::new(Slots::Auto, at(0));
        places.not_told();
        let (mut running, mut refused) = (0, 0);
        for second in 0..1800 {
            let threads = match second {
                0..600 => 5,
                600..1200 => 2,
                _ => 8,
            };
            refused += fill(&places, threads, &mut running, at(second));
            let steady = second % 600 > 300;
            assert!(!steady || places.limit().abs_diff(threads) <= 1, "{second}: {places:?}");
            if second % 3 == 0 {
                finish(&places, &mut running);
            }
        }
        assert!(refused < 40, "{refused} refusals in half an hour");
    }

    #[test]
    fn a_told_number_is_never_exceeded_and_leaves_room_for_others() {
        let places = Places::new(Slots::Auto, at(0));
        places.told(Threads { total: 5, working: 0 });
        let mut running = 0;
        for second in 0..600 {
            assert_eq!(fill(&places, 5, &mut running, at(second)), 0);
            assert!(running <= 5);
            finish(&places, &mut running);
        }
        places.told(Threads { total: 5, working: 4 + 3 });
        assert!(places.limit() <= 2, "three are another's: {places:?}");
    }

    #[test]
    fn with_all_threads_in_use_by_others_the_provider_is_left_alone() {
        let places = Places::new(Slots::Fixed(4), at(0));
        let mut running = 0;
        let mut asked = Vec::new();
        for second in 0..600 {
            if fill(&places, 0, &mut running, at(second)) > 0 {
                asked.push(second);
            }
        }
        assert!(asked.len() < 20, "{asked:?}");
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 60), "{asked:?}");
    }

    #[test]
    fn nothing_is_submitted_with_no_slots() {
        assert_eq!(Places::new(Slots::Fixed(0), at(0)).is_free(at(0)), Err(None));
    }

    #[test]
    fn one_burst_of_refusals_is_one_and_what_was_accepted_stands() {
        let places = Places::new(Slots::Fixed(50), at(0));
        for _ in 0..20 {
            places.take(at(0));
        }
        // The replies come in any order.
        for n in 0..20 {
            if n % 4 == 3 {
                places.accepted();
                places.submitted();
                places.occupy();
            } else {
                places.refused(at(0), Timestamp::from_millis(1_000_100 + n));
                places.submitted();
            }
        }
        assert_eq!(places.limit(), 5, "{places:?}");
        places.give_back();
        assert_eq!(places.is_free(at(8)), Ok(()), "{places:?}");
    }

    #[test]
    fn nothing_is_looked_at_in_the_past() {
        let places = Places::new(Slots::Auto, at(0));
        places.not_told();
        for _ in 0..5 {
            places.occupy();
        }
        places.take(at(1));
        places.refused(at(1), at(1));
        places.submitted();
        places.occupy();
        assert_eq!(places.is_free(at(4000)), Err(None), "{places:?}");
    }

    #[test]
    fn with_all_threads_told_to_be_others_nothing_is_tried() {
        let places = Places::new(Slots::Auto, at(0));
        places.told(Threads { total: 5, working: 5 });
        assert!(places.is_free(at(1)).is_err());
        places.told(Threads { total: 5, working: 4 });
        assert_eq!(places.is_free(at(1)), Ok(()));
    }
}
