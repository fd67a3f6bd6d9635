//! The documented temporary bans (`ERROR: 1001` … and `MAX_USER_TURN`), so that tests can show that the gateway's rate limits
//! avoid them. Used by `behaviour` when enabled.

use std::{collections::VecDeque, time::Duration};

use domain::{retry::Code, time::Timestamp};

#[derive(Clone, Debug, Default)]
pub(crate) struct Bans {
    submits: VecDeque<Timestamp>,
    no_slots: VecDeque<Timestamp>,
    no_money: VecDeque<Timestamp>,
    wrong_keys: VecDeque<Timestamp>,
    pub(crate) accepted: u64,
    fetches: u64,
    everything: Option<Ban>,
    submitting: Option<Ban>,
    fetching: Option<Ban>,
}

#[derive(Clone, Debug)]
struct Ban {
    code: &'static str,
    until: Timestamp,
}

const MINUTE: Duration = Duration::from_secs(60);

// === impl Bans ===

impl Bans {
    /// Counts a submission; returns the code that refuses it, if any.
    pub(crate) fn submit(&mut self, now: Timestamp) -> Option<Code> {
        note(&mut self.submits, now, Duration::from_secs(3));
        if self.submits.len() > 60 {
            set(&mut self.submitting, "MAX_USER_TURN", now, 10);
        }
        in_force(&mut self.everything, now).or_else(|| in_force(&mut self.submitting, now))
    }

    pub(crate) fn refused(&mut self, code: &str, now: Timestamp) {
        let (refusals, ban, seconds) = match code {
            "ERROR_NO_SLOT_AVAILABLE" => (&mut self.no_slots, "ERROR: 1001", 600),
            "ERROR_ZERO_BALANCE" => (&mut self.no_money, "ERROR: 1002", 300),
            _ => return,
        };
        note(refusals, now, MINUTE);
        if refusals.len() >= 120 {
            set(&mut self.submitting, ban, now, seconds);
        }
    }

    pub(crate) fn wrong_key(&mut self, now: Timestamp) {
        note(&mut self.wrong_keys, now, 10 * MINUTE);
        if self.wrong_keys.len() >= 5 {
            self.wrong_keys.clear();
            set(&mut self.everything, "ERROR: 1004", now, 600);
        }
    }

    /// Counts a request to res.php; returns the code that refuses it, if any.
    pub(crate) fn fetch(&mut self, now: Timestamp) -> Option<Code> {
        self.fetches += 1;
        if self.fetches > 20 * self.accepted + 1200 {
            (self.fetches, self.accepted) = (0, 0);
            set(&mut self.fetching, "ERROR: 1005", now, 300);
        }
        in_force(&mut self.everything, now).or_else(|| in_force(&mut self.fetching, now))
    }
}

fn set(ban: &mut Option<Ban>, code: &'static str, now: Timestamp, seconds: u64) {
    *ban = Some(Ban { code, until: now.plus(Duration::from_secs(seconds)) });
}

/// Counts an event and drops those outside the window.
fn note(events: &mut VecDeque<Timestamp>, now: Timestamp, window: Duration) {
    events.push_back(now);
    while events.front().is_some_and(|first| now.since(*first) >= window) {
        events.pop_front();
    }
}

fn in_force(ban: &mut Option<Ban>, now: Timestamp) -> Option<Code> {
    ban.take_if(|ban| now >= ban.until);
    ban.as_ref().map(|ban| ban.code.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn more_than_sixty_submits_in_three_seconds_are_banned_for_ten() {
        let mut bans = Bans::default();
        assert!((0..60).all(|_| bans.submit(at(100)).is_none()));
        assert_eq!(bans.submit(at(101)), Some("MAX_USER_TURN".into()));
        assert_eq!(bans.submit(at(110)), Some("MAX_USER_TURN".into()));
        assert_eq!(bans.submit(at(111)), None);
    }

    #[test]
    fn twenty_submits_a_second_are_never_banned() {
        let mut bans = Bans::default();
        assert!((0..2_000).all(|n| bans.submit(Timestamp::from_millis(n * 50)).is_none()));
    }

    #[test]
    fn asking_more_than_twenty_times_per_task_is_banned() {
        let mut bans = Bans::default();
        bans.accepted += 1;
        assert!((0..1220).all(|_| bans.fetch(at(1)).is_none()));
        assert_eq!(bans.fetch(at(1)), Some("ERROR: 1005".into()));
        assert_eq!(bans.fetch(at(301)), None);
    }

    #[test]
    fn refusals_and_wrong_keys_are_counted() {
        let mut bans = Bans::default();
        (0..120).for_each(|_| bans.refused("ERROR_NO_SLOT_AVAILABLE", at(1)));
        assert_eq!(bans.submit(at(2)), Some("ERROR: 1001".into()));
        (0..5).for_each(|_| bans.wrong_key(at(3)));
        assert_eq!(bans.fetch(at(4)), Some("ERROR: 1004".into()));
        assert_eq!(bans.fetch(at(603)), None);
    }
}
