//! The poll quota of the account. The provider bans accounts whose polls exceed twenty per task by 1200. Each task has its
//! own number of polls (pipeline/poll.rs); this counter covers all of them together, including polls caused by faults,
//! restarts and answers that have to be read again.

use std::time::Duration;

use domain::time::Timestamp;
use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct PollQuota(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Calls that tasks have paid for; negative when borrowed.
    calls: i64,
    /// `calls` does not fall below this.
    least: i64,
    /// When the next call may be borrowed.
    borrow_at: Timestamp,
    /// Tasks that were submitted.
    tasks: u64,
}

/// The initial quota of a process.
const INITIAL: i64 = 200;
/// What all gateways together may use beyond their tasks: less than what providers allow, because other questions count, too.
const ALLOWED: i64 = 1000;
/// Paid tasks are polled even with an empty quota: this many calls may be borrowed from future tasks, one a second.
const MAX_BORROWED: i64 = 600;
const BORROW_EVERY: Duration = Duration::from_secs(1);

// === impl PollQuota ===

impl Default for PollQuota {
    fn default() -> Self {
        Self(Mutex::new(State {
            calls: INITIAL,
            least: -MAX_BORROWED,
            borrow_at: Timestamp::default(),
            tasks: 0,
        }))
    }
}

impl PollQuota {
    /// A task was submitted and brings this many calls.
    pub(crate) fn earn(&self, calls: u32) {
        let mut state = self.0.lock();
        state.calls += i64::from(calls);
        state.tasks += 1;
    }

    /// Takes one call, or says when to try again.
    pub(crate) fn take(&self, now: Timestamp) -> Result<(), Timestamp> {
        let mut state = self.0.lock();
        if state.calls <= state.least.max(0) {
            if state.calls <= state.least || now < state.borrow_at {
                return Err(now.max(state.borrow_at).plus(BORROW_EVERY));
            }
            state.borrow_at = now.plus(BORROW_EVERY);
        }
        state.calls -= 1;
        Ok(())
    }

    /// Divides what is allowed beyond the tasks among the gateways, so that all of them together stay within it. One that has
    /// used more polls again when tasks have paid for it.
    pub(crate) fn share_among(&self, gateways: usize) {
        let gateways = i64::try_from(gateways.max(1)).unwrap_or(i64::MAX);
        let part = (ALLOWED / gateways).min(INITIAL + MAX_BORROWED);
        self.0.lock().least = INITIAL - part;
    }

    /// How many tasks this process has submitted.
    pub(crate) fn tasks(&self) -> u64 {
        self.0.lock().tasks
    }

    /// Takes one call if some are left over, for questions that can wait.
    pub(crate) fn take_spare(&self) -> bool {
        let mut state = self.0.lock();
        let is_spare = state.calls > state.least.max(0);
        state.calls -= i64::from(is_spare);
        is_spare
    }

    /// Counts calls that are made in any case.
    pub(crate) fn spend(&self, calls: usize) {
        let calls = i64::try_from(calls).unwrap_or(i64::MAX);
        let mut state = self.0.lock();
        state.calls = state.calls.saturating_sub(calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls made between two seconds, with ten tries a second.
    fn made(quota: &PollQuota, from: u64, to: u64) -> usize {
        let tries = (from * 10..to * 10).map(|n| quota.take(Timestamp::from_millis(n * 100)));
        tries.flatten().count()
    }

    #[test]
    fn tasks_pay_for_their_calls_and_a_few_more_are_borrowed_slowly() {
        let quota = PollQuota::default();
        quota.earn(20);
        assert_eq!(made(&quota, 0, 10), 100);
        assert_eq!(made(&quota, 10, 22), 120);
        assert_eq!(made(&quota, 22, 32), 10, "one a second");
        assert_eq!(made(&quota, 32, 100_000), 590, "and not for ever");
        quota.earn(620);
        assert_eq!(made(&quota, 100_000, 100_002), 20, "what was borrowed is owed");
    }

    #[test]
    fn gateways_together_stay_within_what_the_provider_allows_beyond_the_tasks() {
        for gateways in 1..=30 {
            let beyond = |_| {
                let quota = PollQuota::default();
                quota.share_among(gateways);
                made(&quota, 0, 10_000)
            };
            let all: usize = (0..gateways).map(beyond).sum();
            assert!(all <= 1000, "{gateways} gateways make {all} calls");
            assert!(all >= 780, "{gateways} gateways make {all} calls");
        }
        let quota = PollQuota::default();
        quota.share_among(10);
        assert_eq!(made(&quota, 0, 1000), 100);
        quota.earn(20);
        assert_eq!(made(&quota, 1000, 2000), 20);
        quota.share_among(1);
        assert_eq!(made(&quota, 2000, 100_000), 700, "it is alone again");
    }

    #[test]
    fn calls_made_in_any_case_count() {
        let quota = PollQuota::default();
        quota.spend(10_000);
        assert_eq!(made(&quota, 0, 100), 0);
    }

    #[test]
    fn polls_never_exceed_what_the_provider_allows() {
        let quota = PollQuota::default();
        for task in 0..500_u64 {
            quota.earn(20);
            let calls = made(&quota, task * 10, task * 10 + 10);
            assert!(calls <= 100);
        }
        let owed = -quota.0.lock().calls;
        assert!(owed <= MAX_BORROWED && INITIAL + MAX_BORROWED <= 1200, "{owed}");
    }
}
