//! Whose turn it is to be told. Each receiver has its own line, so that one that is slow or dead holds up nobody else;
//! among those with something waiting, turns go round.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
};

use domain::{callback::Callback, time::Timestamp};

/// So many are told at once, by everybody together.
const MOST: usize = 64;
/// So many at once to one receiver.
const MOST_EACH: usize = 4;
/// So many wait here for their turn. What is more comes back from the store at its next try.
const MOST_WAITING: usize = 10_000;

/// Callbacks that were taken from the store, by receiver.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    lines: BTreeMap<String, Line>,
    /// Who was told last: the turn goes to whoever comes after.
    last: String,
    telling: usize,
    waiting: usize,
}

/// How a telling ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The receiver took it.
    Taken,
    /// It did not.
    NotTaken,
    /// There was nothing to tell any more, or not now.
    Nothing,
}

/// What waits for one receiver.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Callback>,
    telling: usize,
    /// The last one was not taken.
    failing: bool,
}

// === impl Receivers ===

impl Receivers {
    /// Puts a callback into its receiver's line. When too many wait, the longest line gives way: whether all are kept.
    pub(super) fn put(&mut self, callback: Callback) -> bool {
        let receiver = callback.receiver();
        let full = self.waiting >= MOST_WAITING;
        if full {
            let own = self.lines.get(&receiver).map_or(0, |line| line.waiting.len());
            let longest = self.lines.values_mut().max_by_key(|line| line.waiting.len());
            let Some(longest) = longest.filter(|longest| longest.waiting.len() > own) else {
                return false;
            };
            longest.waiting.pop_back();
            self.waiting -= 1;
        }
        self.lines.entry(receiver).or_default().waiting.push_back(callback);
        self.waiting += 1;
        !full
    }

    /// The next to be told, and to whom; none while all places are taken.
    pub(super) fn next(&mut self) -> Option<(String, Callback)> {
        if self.telling >= MOST {
            return None;
        }
        let after = (Bound::Excluded(self.last.as_str()), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Included(self.last.as_str()));
        let mut round = self.lines.range::<str, _>(after).chain(self.lines.range::<str, _>(before));
        let receiver = round.find(|(_, line)| line.may_be_told())?.0.clone();
        let line = self.lines.get_mut(&receiver)?;
        let callback = line.waiting.pop_front()?;
        line.telling += 1;
        self.telling += 1;
        self.waiting -= 1;
        self.last.clone_from(&receiver);
        Some((receiver, callback))
    }

    /// A telling has ended; its place is free.
    pub(super) fn ended(&mut self, receiver: &str, end: End) {
        self.telling -= 1;
        let Some(line) = self.lines.get_mut(receiver) else { return };
        line.telling -= 1;
        line.failing = match end {
            End::Taken => false,
            End::NotTaken => true,
            End::Nothing => line.failing,
        };
        if line.is_idle() {
            self.lines.remove(receiver);
        }
    }

    /// Forgets what has waited until its next try: from then on the store hands it out again.
    pub(super) fn forget(&mut self, until: Timestamp) {
        self.lines.retain(|_, line| {
            line.waiting.retain(|callback| callback.due > until);
            !line.is_idle()
        });
        self.waiting = self.lines.values().map(|line| line.waiting.len()).sum();
    }
}

// === impl Line ===

impl Line {
    /// A receiver that did not take the last one is asked one by one until it takes one.
    fn may_be_told(&self) -> bool {
        let most = if self.failing { 1 } else { MOST_EACH };
        !self.waiting.is_empty() && self.telling < most
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.telling == 0
    }
}

#[cfg(test)]
mod tests {
    use domain::{claim::ClaimState, id::ClaimId, secret::Secret};

    use super::*;

    fn callback(host: &str, number: u64) -> Callback {
        Callback {
            claim: ClaimId::from_number(number),
            url: Secret::new(format!("https://{host}/{number}")),
            state: ClaimState::Served,
            tries: 1,
            since: Timestamp::default(),
            due: Timestamp::from_millis(number),
        }
    }

    /// Puts so many for a host; how many of all were kept.
    fn put(receivers: &mut Receivers, host: &str, count: u64) -> usize {
        (1..=count).filter(|number| receivers.put(callback(host, *number))).count()
    }

    /// Whom the next are told, as far as there are places.
    fn told(receivers: &mut Receivers) -> Vec<String> {
        std::iter::from_fn(|| receivers.next().map(|(receiver, _)| receiver)).collect()
    }

    #[test]
    fn a_receiver_has_four_places_and_all_together_sixty_four() {
        let mut receivers = Receivers::default();
        put(&mut receivers, "a", 100);
        assert_eq!(told(&mut receivers), ["https://a"; 4]);
        put(&mut receivers, "b", 1);
        assert_eq!(told(&mut receivers), ["https://b"], "whoever comes later waits for nobody");
        for n in 0..100 {
            put(&mut receivers, &format!("c{n}"), 1);
        }
        assert_eq!(told(&mut receivers).len(), 59);
        receivers.ended("https://b", End::Taken);
        assert_eq!(told(&mut receivers).len(), 1);
    }

    #[test]
    fn turns_go_round() {
        let mut receivers = Receivers::default();
        for host in ["a", "b", "c"] {
            put(&mut receivers, host, 2);
        }
        let round = ["https://a", "https://b", "https://c"];
        assert_eq!(told(&mut receivers), [round, round].concat());
    }

    #[test]
    fn a_receiver_that_fails_is_told_one_by_one_until_it_takes_one() {
        let mut receivers = Receivers::default();
        put(&mut receivers, "a", 100);
        assert_eq!(told(&mut receivers).len(), 4);
        for _ in 0..4 {
            receivers.ended("https://a", End::NotTaken);
        }
        assert_eq!(told(&mut receivers).len(), 1);
        receivers.ended("https://a", End::Nothing);
        assert_eq!(told(&mut receivers).len(), 1);
        receivers.ended("https://a", End::Taken);
        assert_eq!(told(&mut receivers).len(), 4);
    }

    #[test]
    fn when_too_many_wait_the_longest_line_gives_way() {
        let mut receivers = Receivers::default();
        assert_eq!(put(&mut receivers, "a", 10_001), MOST_WAITING);
        assert_eq!(put(&mut receivers, "b", 3), 0, "each puts one of the others off");
        let length = |receivers: &Receivers, of: &str| receivers.lines[of].waiting.len();
        assert_eq!(
            (length(&receivers, "https://a"), length(&receivers, "https://b")),
            (MOST_WAITING - 3, 3)
        );
        assert_eq!(receivers.waiting, MOST_WAITING);
    }

    #[test]
    fn what_the_store_hands_out_again_is_forgotten() {
        let mut receivers = Receivers::default();
        put(&mut receivers, "a", 6);
        put(&mut receivers, "b", 3);
        receivers.forget(Timestamp::from_millis(4));
        assert_eq!((receivers.waiting, receivers.lines.len()), (2, 1));
        assert_eq!(receivers.next().unwrap().1.claim, ClaimId::from_number(5));
        receivers.next().unwrap();
        receivers.ended("https://a", End::Taken);
        receivers.ended("https://a", End::Taken);
        assert!(receivers.lines.is_empty(), "nothing is left of a receiver that is done");
    }
}
