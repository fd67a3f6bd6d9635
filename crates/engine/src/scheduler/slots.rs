//! Counts the slots at the provider: how many tasks it works on for us at once, and how many of those are taken. The
//! provider reports the number, or the counter learns it from refusals.
//!
//! A refusal for want of a slot is exact: with `n` of our tasks accepted, there are `n` slots. So the estimate drops to
//! `n` at once. It rises by one at a time, and after a refusal only now and then.
//!
//! A plan that is configured or reported is shared with the other gateways (`account_share.rs`). Without one, each gateway
//! learns by itself what it can have.

use std::time::Duration;

use domain::{ports::Threads, time::Timestamp};
use parking_lot::Mutex;

/// How many tasks may be at the provider at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// As many as the account has threads; learned from refusals when the provider does not report them.
    Auto,
    /// This many. With 0 the engine only reads and submits nothing.
    Fixed(usize),
}

#[derive(Debug)]
pub(crate) struct SlotCounter(Mutex<State>);

#[derive(Clone, Debug)]
struct State {
    /// Upper bound on the estimate: configured, reported by the provider, or [`MAX_SLOTS`].
    most: usize,
    /// The current estimate.
    limit: usize,
    /// Submissions under way and tasks at the provider.
    used: usize,
    /// Submissions under way.
    pending: usize,
    /// Whether every task accepted at the limit makes room for one more.
    growing: bool,
    /// Refusals since the last accepted task; a burst counts as one.
    refusals: u32,
    last_refusal: Timestamp,
    /// "Maybe no slot" answers in a row, although the provider reported free threads.
    doubts: u32,
    /// No submission before then.
    hold_until: Timestamp,
    /// The limit is not raised before then.
    raise_at: Timestamp,
    /// How long after a refusal the limit is raised by one.
    raise_wait: Duration,
    /// The slots of the account that are for all our gateways; `None` while they are learned.
    plan: Option<usize>,
    /// This gateway's share of the plan, which is obeyed once there is a plan.
    share: usize,
    /// The threads that seemed to be others' at the last report.
    strangers: usize,
}

/// The first estimate for an unknown account.
const INITIAL_LIMIT: usize = 5;
const FIRST_REPORT_WAIT: Duration = Duration::from_secs(3);
const MAX_SLOTS: usize = 1000;
const RAISE_WAIT: Duration = Duration::from_secs(30);
/// A plan that became larger is found within a minute, and a refusal now and then is far from the provider's ban.
const MAX_RAISE_WAIT: Duration = Duration::from_secs(45);
/// When none of the occupied threads is ours, others use the account: submissions pause, with doubling waits.
const FIRST_HOLD: Duration = Duration::from_secs(2);
const MAX_HOLD: Duration = Duration::from_secs(60);

// === impl SlotCounter ===

impl SlotCounter {
    /// The size of an account is unknown at first, so submissions wait a moment for the provider's report.
    pub(crate) fn new(slots: Slots, now: Timestamp) -> Self {
        let (most, limit, hold_until, plan) = match slots {
            Slots::Auto => (MAX_SLOTS, INITIAL_LIMIT, now.plus(FIRST_REPORT_WAIT), None),
            Slots::Fixed(slots) => (slots, slots, now, Some(slots)),
        };
        Self(Mutex::new(State {
            most,
            limit,
            used: 0,
            pending: 0,
            growing: true,
            refusals: 0,
            doubts: 0,
            last_refusal: Timestamp::default(),
            hold_until,
            raise_at: Timestamp::default(),
            raise_wait: RAISE_WAIT,
            plan,
            share: usize::MAX,
            strangers: 0,
        }))
    }

    /// `Ok` if there is a free slot; `Err` says when to try again, if time alone will help.
    pub(crate) fn is_free(&self, now: Timestamp) -> Result<(), Option<Timestamp>> {
        let state = self.0.lock();
        let may_raise = state.limit < state.most && !state.growing;
        if now < state.hold_until {
            Err(Some(state.hold_until))
        } else if state.used >= state.share() {
            // A renewal of the lease brings more, and wakes the driver.
            Err(None)
        } else if state.used < state.limit || (may_raise && state.may_raise(now)) {
            Ok(())
        } else {
            Err(Some(state.raise_at).filter(|at| may_raise && now < *at))
        }
    }

    /// Whether a slot is free for certain, so that no submission has to find out whether there is one more.
    pub(crate) fn has_room(&self, now: Timestamp) -> bool {
        let state = self.0.lock();
        now >= state.hold_until && state.used < state.share().min(state.limit)
    }

    /// A submission takes a slot.
    pub(crate) fn take(&self, now: Timestamp) {
        let mut state = self.0.lock();
        if state.used >= state.limit && state.may_raise(now) {
            state.limit = (state.limit + 1).min(state.most);
            state.growing = true;
        }
        state.used += 1;
        state.pending += 1;
    }

    /// A task of ours that is already at the provider takes a slot, whatever the limit says.
    pub(crate) fn occupy(&self) {
        self.0.lock().used += 1;
    }

    /// A task is over and its slot is free.
    pub(crate) fn give_back(&self) {
        let mut state = self.0.lock();
        state.used = state.used.saturating_sub(1);
    }

    /// A submission is over. If it led to a task, that task occupies a slot of its own.
    pub(crate) fn submitted(&self) {
        let mut state = self.0.lock();
        state.used = state.used.saturating_sub(1);
        state.pending = state.pending.saturating_sub(1);
    }

    /// The provider accepted a submission.
    pub(crate) fn accepted(&self) {
        let mut state = self.0.lock();
        state.refusals = 0;
        state.doubts = 0;
        state.hold_until = Timestamp::default();
        // A refusal may be read before the acceptances that preceded it at the provider.
        let proven = state.used.saturating_sub(state.pending) + 1;
        state.limit = state.limit.max(proven.min(state.most));
        if state.growing && state.used >= state.limit && state.limit < state.most {
            state.limit += 1;
            state.raise_wait = RAISE_WAIT;
        }
    }

    /// The provider had no slot for a submission that left at `sent_at`.
    pub(crate) fn refused(&self, sent_at: Timestamp, now: Timestamp) {
        let mut state = self.0.lock();
        let accepted = state.used.saturating_sub(state.pending);
        if state.growing && state.raise_at > Timestamp::default() {
            state.raise_wait = (state.raise_wait * 2).min(MAX_RAISE_WAIT);
        }
        state.growing = false;
        state.limit = accepted.clamp(1, state.limit.max(1));
        state.raise_at = now.plus(state.raise_wait);
        if sent_at <= state.last_refusal {
            // It left in the same burst as the last refusal and says nothing new.
            return;
        }
        state.last_refusal = now;
        let doublings = if accepted == 0 { state.refusals } else { state.refusals.max(1) - 1 };
        if accepted == 0 || state.refusals > 0 {
            let hold = FIRST_HOLD.saturating_mul(2u32.saturating_pow(doublings.min(10)));
            state.hold_until = now.plus(hold.min(MAX_HOLD));
        }
        state.refusals = state.refusals.saturating_add(1);
        tracing::info!(limit = state.limit, "provider had no free slot, lowering the slot limit");
    }

    /// Takes in the threads that the provider reports. Threads that others use are not ours.
    ///
    /// Other gateways of ours said at their last renewals that they use `ours`, which may have changed since. So only
    /// threads that two reports in a row cannot explain are others'.
    pub(crate) fn set_reported(&self, threads: Threads, ours: Option<usize>) {
        let Ok(total) = usize::try_from(threads.total) else { return };
        let working = usize::try_from(threads.working).unwrap_or(usize::MAX);
        let mut state = self.0.lock();
        let others = working.saturating_sub(state.used.saturating_add(ours.unwrap_or(0)));
        let before = std::mem::replace(&mut state.strangers, others);
        let others = if ours.is_some() { others.min(before) } else { others };
        let limit = total.min(MAX_SLOTS).saturating_sub(others);
        if limit != state.limit {
            tracing::info!(total, working, limit, "provider reported its threads");
        }
        state.most = total.min(MAX_SLOTS);
        state.plan = Some(limit);
        state.limit = limit;
        state.growing = false;
        if limit > 0 {
            state.refusals = 0;
            state.hold_until = Timestamp::default();
        }
        // A reported number changes with the next report, not by trying.
        state.raise_at = Timestamp::from_millis(u64::MAX);
    }

    /// The provider does not report its threads: the counter learns from refusals.
    pub(crate) fn set_unreported(&self) {
        let mut state = self.0.lock();
        if state.refusals == 0 {
            state.hold_until = Timestamp::default();
        }
        // The last report may have said that others use everything: one submission is still tried now and then.
        state.limit = state.limit.max(state.most.min(1));
    }

    /// Counts an answer that may mean "no slot" although threads were reported free; `true` from the second in a row on.
    pub(crate) fn doubted_before(&self) -> bool {
        let mut state = self.0.lock();
        state.doubts = state.doubts.saturating_add(1);
        state.doubts > 1
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.lock().limit
    }

    /// The slots that this gateway can use, of those of the account.
    pub(crate) fn available(&self) -> usize {
        let state = self.0.lock();
        state.limit.min(state.share())
    }

    /// The slots of the account to share; `None` while they are not known.
    pub(crate) fn plan(&self) -> Option<usize> {
        self.0.lock().plan
    }

    /// Up to how many slots this gateway uses until its share changes.
    pub(crate) fn in_force(&self) -> usize {
        let state = self.0.lock();
        match state.plan {
            None => state.used,
            Some(_) if state.share == usize::MAX => state.limit.max(state.used),
            Some(_) => state.share.max(state.used),
        }
    }

    /// Obeys a share. Tasks beyond it go on to their end.
    pub(crate) fn set_share(&self, share: usize) {
        self.0.lock().share = share;
    }

    /// Submissions under way and tasks at the provider.
    pub(crate) fn used(&self) -> usize {
        self.0.lock().used
    }
}

// === impl State ===

impl State {
    /// The slots that are not the other gateways'.
    fn share(&self) -> usize {
        if self.plan.is_some() { self.share } else { usize::MAX }
    }

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

    /// Submits to a provider with `threads` threads until no slot is free; returns how many it refused.
    fn fill(slots: &SlotCounter, threads: usize, running: &mut usize, now: Timestamp) -> usize {
        let mut refused = 0;
        while slots.is_free(now).is_ok() && refused < 50 {
            slots.take(now);
            if *running < threads {
                slots.accepted();
                slots.submitted();
                slots.occupy();
                *running += 1;
            } else {
                slots.refused(now, now);
                slots.submitted();
                refused += 1;
            }
        }
        refused
    }

    fn finish(slots: &SlotCounter, running: &mut usize) {
        if *running > 0 {
            slots.give_back();
            *running -= 1;
        }
    }

    #[test]
    fn an_unknown_number_of_threads_is_learned_with_few_refusals_and_tracked() {
        let slots = SlotCounter::new(Slots::Auto, at(0));
        slots.set_unreported();
        let (mut running, mut refused) = (0, 0);
        for second in 0..1800 {
            let threads = match second {
                0..600 => 5,
                600..1200 => 2,
                _ => 8,
            };
            refused += fill(&slots, threads, &mut running, at(second));
            let steady = second % 600 > 300;
            assert!(!steady || slots.limit().abs_diff(threads) <= 1, "{second}: {slots:?}");
            if second % 3 == 0 {
                finish(&slots, &mut running);
            }
        }
        // One every 45 s, and some for the change from five threads to two.
        assert!(refused < 50, "{refused} refusals in half an hour");
    }

    #[test]
    fn a_plan_that_became_larger_is_found_within_a_minute() {
        // The change comes at any moment between two tries.
        for change in (300..400).step_by(7) {
            let slots = SlotCounter::new(Slots::Auto, at(0));
            slots.set_unreported();
            let mut running = 0;
            for second in 0..=change + 60 {
                let threads = if second < change { 2 } else { 8 };
                fill(&slots, threads, &mut running, at(second));
                if second % 3 == 0 && second < change + 60 {
                    finish(&slots, &mut running);
                }
            }
            assert!(slots.limit() >= 8, "changed at {change} s: {slots:?}");
        }
    }

    #[test]
    fn a_reported_number_is_never_exceeded_and_leaves_room_for_others() {
        let slots = SlotCounter::new(Slots::Auto, at(0));
        slots.set_reported(Threads { total: 5, working: 0 }, None);
        let mut running = 0;
        for second in 0..600 {
            assert_eq!(fill(&slots, 5, &mut running, at(second)), 0);
            assert!(running <= 5);
            finish(&slots, &mut running);
        }
        slots.set_reported(Threads { total: 5, working: 4 + 3 }, None);
        assert!(slots.limit() <= 2, "three are another's: {slots:?}");
    }

    #[test]
    fn while_others_use_all_threads_submissions_back_off() {
        let slots = SlotCounter::new(Slots::Fixed(4), at(0));
        let mut running = 0;
        let mut tried = Vec::new();
        for second in 0..600 {
            if fill(&slots, 0, &mut running, at(second)) > 0 {
                tried.push(second);
            }
        }
        assert!(tried.len() < 20, "{tried:?}");
        assert!(tried.windows(2).all(|pair| pair[1] - pair[0] <= 60), "{tried:?}");
    }

    #[test]
    fn nothing_is_submitted_with_no_slots() {
        assert_eq!(SlotCounter::new(Slots::Fixed(0), at(0)).is_free(at(0)), Err(None));
    }

    #[test]
    fn a_burst_of_refusals_counts_once_and_accepted_tasks_stand() {
        let slots = SlotCounter::new(Slots::Fixed(50), at(0));
        for _ in 0..20 {
            slots.take(at(0));
        }
        // The replies come in any order.
        for n in 0..20 {
            if n % 4 == 3 {
                slots.accepted();
                slots.submitted();
                slots.occupy();
            } else {
                slots.refused(at(0), Timestamp::from_millis(1_000_100 + n));
                slots.submitted();
            }
        }
        assert_eq!(slots.limit(), 5, "{slots:?}");
        slots.give_back();
        assert_eq!(slots.is_free(at(8)), Ok(()), "{slots:?}");
    }

    #[test]
    fn no_retry_time_lies_in_the_past() {
        let slots = SlotCounter::new(Slots::Auto, at(0));
        slots.set_unreported();
        for _ in 0..5 {
            slots.occupy();
        }
        slots.take(at(1));
        slots.refused(at(1), at(1));
        slots.submitted();
        slots.occupy();
        assert_eq!(slots.is_free(at(4000)), Err(None), "{slots:?}");
    }

    #[test]
    fn a_share_is_obeyed_while_tasks_beyond_it_go_on() {
        let slots = SlotCounter::new(Slots::Fixed(5), at(0));
        let mut running = 0;
        assert_eq!((fill(&slots, 5, &mut running, at(0)), running), (0, 5));
        slots.set_share(3);
        assert_eq!((slots.available(), slots.in_force(), slots.limit()), (3, 5, 5));
        finish(&slots, &mut running);
        finish(&slots, &mut running);
        assert_eq!((slots.is_free(at(1)), slots.in_force()), (Err(None), 3));
        finish(&slots, &mut running);
        assert_eq!((slots.is_free(at(1)), slots.in_force()), (Ok(()), 3), "it may use three");
        slots.set_share(usize::MAX);
        assert_eq!(slots.in_force(), 5);
    }

    #[test]
    fn slots_that_are_learned_are_not_shared() {
        let slots = SlotCounter::new(Slots::Auto, at(0));
        slots.set_unreported();
        slots.set_share(0);
        assert_eq!((slots.plan(), slots.is_free(at(1)), slots.in_force()), (None, Ok(()), 0));
        slots.set_reported(Threads { total: 5, working: 0 }, None);
        assert_eq!((slots.plan(), slots.is_free(at(1))), (Some(5), Err(None)));
    }

    #[test]
    fn threads_of_our_other_gateways_are_not_strangers() {
        let slots = SlotCounter::new(Slots::Auto, at(0));
        slots.set_reported(Threads { total: 9, working: 4 }, Some(4));
        assert_eq!(slots.plan(), Some(9));
        // They may have submitted two more since they said so.
        slots.set_reported(Threads { total: 9, working: 6 }, Some(4));
        assert_eq!(slots.plan(), Some(9));
        slots.set_reported(Threads { total: 9, working: 8 }, Some(5));
        assert_eq!(slots.plan(), Some(7), "two were there both times");
    }

    #[test]
    fn when_others_use_all_reported_threads_nothing_is_tried() {
        let slots = SlotCounter::new(Slots::Auto, at(0));
        slots.set_reported(Threads { total: 5, working: 5 }, None);
        assert!(slots.is_free(at(1)).is_err());
        slots.set_reported(Threads { total: 5, working: 4 }, None);
        assert_eq!(slots.is_free(at(1)), Ok(()));
    }
}
