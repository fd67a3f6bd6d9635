//! The central throttle for polls: the provider bans accounts whose questions outnumber twenty for each task by 1200. A
//! task has its own number of polls (poll.rs); what goes beyond it, because of faults, restarts and answers that have to be
//! asked for again, is counted here for all tasks together.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use domain::time::Timestamp;

/// How often the account may ask.
#[derive(Debug)]
pub(crate) struct Quota(Mutex<Left>);

#[derive(Debug)]
struct Left {
    /// Calls that are covered by tasks; negative when borrowed.
    calls: i64,
    /// When the next one may be borrowed.
    borrow_at: Timestamp,
}

/// What a process starts with: a part of what providers allow beside the tasks. Other processes, and later lives of this
/// one, start with it too.
const AT_FIRST: i64 = 200;
/// Paid tasks are not forgotten for want of leave: so many calls are borrowed from tasks to come, one a second.
const MOST_BORROWED: i64 = 600;
const BORROW_EVERY: Duration = Duration::from_secs(1);

// === impl Quota ===

impl Default for Quota {
    fn default() -> Self {
        Self(Mutex::new(Left { calls: AT_FIRST, borrow_at: Timestamp::default() }))
    }
}

impl Quota {
    /// A task brings so many calls.
    pub(crate) fn earn(&self, calls: u32) {
        self.left().calls += i64::from(calls);
    }

    /// Leave for one call, or when to ask for it again.
    pub(crate) fn ask(&self, now: Timestamp) -> Result<(), Timestamp> {
        let mut left = self.left();
        if left.calls <= 0 {
            if left.calls <= -MOST_BORROWED || now < left.borrow_at {
                return Err(now.max(left.borrow_at).plus(BORROW_EVERY));
            }
            left.borrow_at = now.plus(BORROW_EVERY);
        }
        left.calls -= 1;
        Ok(())
    }

    /// Calls that are made in any case.
    pub(crate) fn spend(&self, calls: usize) {
        let calls = i64::try_from(calls).unwrap_or(i64::MAX);
        let mut left = self.left();
        left.calls = left.calls.saturating_sub(calls);
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls made within so many seconds by somebody who asks ten times a second.
    fn made(quota: &Quota, from: u64, to: u64) -> usize {
        let asks = (from * 10..to * 10).map(|n| quota.ask(Timestamp::from_millis(n * 100)));
        asks.flatten().count()
    }

    #[test]
    fn tasks_cover_their_calls_and_a_few_more_are_borrowed_slowly() {
        let quota = Quota::default();
        quota.earn(20);
        assert_eq!(made(&quota, 0, 10), 100);
        assert_eq!(made(&quota, 10, 22), 120);
        assert_eq!(made(&quota, 22, 32), 10, "one a second");
        assert_eq!(made(&quota, 32, 100_000), 590, "and not for ever");
        quota.earn(620);
        assert_eq!(made(&quota, 100_000, 100_002), 20, "what was borrowed is owed");
    }

    #[test]
    fn calls_made_in_any_case_count() {
        let quota = Quota::default();
        quota.spend(10_000);
        assert_eq!(made(&quota, 0, 100), 0);
    }

    #[test]
    fn whatever_is_asked_the_provider_counts_no_more_than_it_allows() {
        let quota = Quota::default();
        for task in 0..500_u64 {
            quota.earn(20);
            let asked = made(&quota, task * 10, task * 10 + 10);
            assert!(asked <= 100);
        }
        let owed = -quota.left().calls;
        assert!(owed <= MOST_BORROWED && AT_FIRST + MOST_BORROWED <= 1200, "{owed}");
    }
}
