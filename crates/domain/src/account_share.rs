//! How the gateways of one store divide a limit of their common account, such as its slots. Each gateway has a stake in the
//! row of its lease; renewals are serial, so the rule sees all stakes. No gateway ever uses more than its stake, and a stake
//! grows only into what the others do not have, so the sum of all stakes stays within the limit.
//!
//! A gateway gives in two steps: it first uses less, and its next renewal lowers the stake. What it gives is never in use
//! when another gateway gets it. A gateway that uses less anyway gives in one step.

use serde::{Deserialize, Serialize};

use crate::id::ClaimId;

/// Published like the change of a claim, under a number that no claim has: a gateway waits for a part that others hold.
pub const ASKED: ClaimId = ClaimId::from_number(1);
/// Published in the same way: a gateway has given a part that others may wait for.
pub const GIVEN: ClaimId = ClaimId::from_number(2);

/// The share of a gateway that has no other beside it: all of the limit, whatever that is and becomes.
pub const WHOLE: u32 = u32::MAX;

/// What a gateway says about one limit when it renews its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitUse {
    /// The limit of the whole account; 0 while this gateway does not know it, or uses nothing of it.
    pub limit: u32,
    /// The most that it uses until it hears the result of this renewal.
    pub in_force: u32,
    /// How much it could use now.
    pub wanted: u32,
}

/// What a gateway says about its use of the account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountUse {
    /// Tasks at the provider at once.
    pub slots: LimitUse,
    /// Submissions a second.
    pub submits: LimitUse,
    /// The slots that are taken now.
    pub used: u32,
}

/// A gateway's part of a limit, as its stored lease has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stake {
    /// The limit as the gateway knew it; 0 if it wants no share.
    pub limit: u32,
    /// At least what the gateway uses.
    pub held: u32,
    /// How much it could use at its last renewal.
    pub wanted: u32,
}

/// The result of a renewal for one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The gateway uses no more than this from now on.
    pub share: u32,
    /// Its stake in the store. It is larger than the share while the gateway still uses more.
    pub held: u32,
    /// Its share once the others have given what they have too much.
    pub fair: u32,
}

/// How a gateway stands among all gateways of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many gateways hold a lease, this one included.
    pub gateways: usize,
    /// Tasks at the provider at once.
    pub slots: Granted,
    /// Submissions a second.
    pub submits: Granted,
    /// The slots that the other gateways said they use.
    pub others_used: u32,
}

/// The other gateways, as one limit sees them.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// The stakes of the living, in the order of their ids.
    pub stakes: Vec<Stake>,
    /// How many of these come before the gateway that asks.
    pub before: usize,
    /// What gateways that are gone still occupy.
    pub gone: u32,
    /// Rises with time. When there are more gateways than parts, it decides whose turn it is.
    pub turn: u64,
}

// === impl LimitUse ===

impl LimitUse {
    /// Divides the limit among this gateway and the others.
    #[must_use]
    pub fn grant(self, others: &Others) -> Granted {
        let taken = others.stakes.iter().fold(others.gone, |sum, s| sum.saturating_add(s.held));
        let is_alone = taken == 0 && others.stakes.iter().all(|stake| stake.limit == 0);
        if is_alone {
            return Granted::WHOLE;
        }
        let fair = self.fair(others);
        let share = fair.min(self.limit.saturating_sub(taken));
        Granted { share, held: share.max(self.in_force), fair }
    }

    fn fair(self, others: &Others) -> u32 {
        if self.limit == 0 {
            return 0;
        }
        let takes_part = |stake: &&Stake| stake.limit > 0;
        let before = others.stakes.iter().take(others.before).filter(takes_part).count();
        let wanted = others.stakes.iter().filter(takes_part).map(|stake| stake.wanted);
        let mut wanted: Vec<u32> = wanted.collect();
        wanted.insert(before, self.wanted);
        divide(self.limit, &wanted, others.turn)[before]
    }
}

/// Divides a limit: equal parts, but to nobody more than is wanted while another wants more; then what is left, equally.
fn divide(limit: u32, wanted: &[u32], turn: u64) -> Vec<u32> {
    let mut parts = vec![0; wanted.len()];
    let mut left = limit;
    loop {
        let hungry: Vec<usize> = (0..parts.len()).filter(|i| parts[*i] < wanted[*i]).collect();
        let each = left / count(hungry.len()).max(1);
        if hungry.is_empty() || each == 0 {
            give_singly(&mut parts, &hungry, &mut left, turn);
            break;
        }
        for i in hungry {
            let more = each.min(wanted[i] - parts[i]);
            parts[i] += more;
            left -= more;
        }
    }
    let each = left / count(parts.len()).max(1);
    let rest = left % count(parts.len()).max(1);
    for (i, part) in parts.iter_mut().enumerate() {
        *part += each + u32::from(count(i) < rest);
    }
    parts
}

/// Gives one each to as many as there is left for. If some would have nothing at all, they take turns.
fn give_singly(parts: &mut [u32], hungry: &[usize], left: &mut u32, turn: u64) {
    let some_have_nothing = hungry.iter().any(|i| parts[*i] == 0);
    let first = if some_have_nothing { turn % u64::from(count(hungry.len()).max(1)) } else { 0 };
    let first = usize::try_from(first).unwrap_or(0);
    for i in hungry.iter().cycle().skip(first).take(hungry.len()) {
        if *left > 0 {
            parts[*i] += 1;
            *left -= 1;
        }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

// === impl Stake ===

impl Stake {
    /// Whether the gateway could use more than it has.
    #[must_use]
    pub fn is_hungry(self) -> bool {
        self.limit > 0 && self.wanted > self.held
    }

    /// The stake of a gateway after a renewal.
    #[must_use]
    pub fn after(uses: LimitUse, granted: Granted) -> Self {
        Self { limit: uses.limit, held: granted.held, wanted: uses.wanted }
    }
}

// === impl Granted ===

impl Granted {
    /// Whether others hold a part of what a gateway wants and is to have.
    #[must_use]
    pub fn is_owed(self, wanted: u32) -> bool {
        self.share < self.fair && self.share < wanted
    }

    /// For a gateway without others.
    pub const WHOLE: Self = Self { share: WHOLE, held: WHOLE, fair: WHOLE };

    /// Whether there is nothing to share.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.share == WHOLE
    }
}

// === impl Standing ===

impl Standing {
    /// For a gateway that shares nothing: it uses the whole limits, whatever others do.
    #[must_use]
    pub fn apart(gateways: usize) -> Self {
        let whole = Granted::WHOLE;
        Self { gateways, slots: whole, submits: whole, others_used: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_follows_what_is_wanted_and_the_rest_is_divided_equally() {
        assert_eq!(divide(20, &[99, 99, 99], 0), [7, 7, 6]);
        assert_eq!(divide(20, &[99, 0, 0], 0), [20, 0, 0], "who wants nothing holds nothing back");
        assert_eq!(divide(20, &[99, 3, 0], 0), [17, 3, 0]);
        assert_eq!(divide(20, &[2, 1, 0], 0), [8, 7, 5], "some of the rest, so that it can start");
        assert_eq!(divide(0, &[5, 5], 0), [0, 0]);
        assert_eq!(divide(7, &[1], 3), [7]);
    }

    #[test]
    fn gateways_that_want_more_than_there_is_take_turns() {
        let turns: Vec<_> = (0..3).map(|turn| divide(1, &[9, 9, 9], turn)).collect();
        assert_eq!(turns, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]);
        assert_eq!(divide(2, &[9, 0, 9, 9], 2), [1, 0, 0, 1]);
    }

    #[test]
    fn a_gateway_without_others_has_the_whole_limit_even_if_it_does_not_know_it() {
        let unknown = LimitUse::default();
        assert!(unknown.grant(&Others::default()).is_whole());
        let readers = Others { stakes: vec![Stake::default(); 3], ..Others::default() };
        assert!(unknown.grant(&readers).is_whole(), "they use nothing");
        let left = Others { gone: 2, ..Others::default() };
        let five = LimitUse { limit: 5, in_force: 0, wanted: 9 };
        assert_eq!(five.grant(&left), Granted { share: 3, held: 3, fair: 5 });
    }

    #[test]
    fn a_gateway_that_joins_waits_until_the_other_has_given() {
        let mut first = Stake { limit: 20, held: WHOLE, wanted: 50 };
        let joins = LimitUse { limit: 20, in_force: 0, wanted: 50 };
        let seen = |stake| Others { stakes: vec![stake], before: 1, ..Others::default() };
        assert_eq!(joins.grant(&seen(first)), Granted { share: 0, held: 0, fair: 10 });
        let mut second = Stake::after(joins, joins.grant(&seen(first)));

        let uses = LimitUse { limit: 20, in_force: 20, wanted: 50 };
        let behind = |stake| Others { stakes: vec![stake], ..Others::default() };
        let granted = uses.grant(&behind(second));
        assert_eq!(granted, Granted { share: 10, held: 20, fair: 10 }, "it still uses twenty");
        first = Stake::after(uses, granted);
        assert_eq!(joins.grant(&seen(first)).share, 0);

        let uses = LimitUse { in_force: 10, ..uses };
        first = Stake::after(uses, uses.grant(&behind(second)));
        assert_eq!(first.held, 10);
        second = Stake::after(joins, joins.grant(&seen(first)));
        assert_eq!(second.held, 10);
    }
}
