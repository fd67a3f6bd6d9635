//! This gateway's shares of the account's limits. Each renewal of its lease (`maintenance/lease_renewal.rs`) says what it uses
//! and brings its shares, which `slots` and `submit_rate` obey until the next. The rule is `domain/src/account_share.rs`.

use std::time::Duration;

use domain::{
    account_share::{ASKED, AccountUse, GIVEN, Granted, LimitUse, Standing},
    id::ClaimId,
    time::Timestamp,
};
use parking_lot::Mutex;

use super::Scheduler;

/// The last renewal: what this gateway said, and how it stands since.
#[derive(Debug, Default)]
pub(crate) struct AccountShare(Mutex<Option<(AccountUse, Standing)>>);

/// A gateway with more work than its share renews this often, so that it soon hears of one that is gone.
const HUNGRY_EVERY: Duration = Duration::from_secs(2);

/// What this gateway uses of the account. Without a valid lease it submits nothing, so it uses no more than its tasks do.
pub(crate) fn current_use(scheduler: &Scheduler, now: Timestamp) -> AccountUse {
    let (slots, rate) = (&scheduler.slots, scheduler.submit_rate.lock());
    let (used, ready) = (slots.used(), scheduler.ready());
    let plan = slots.plan();
    let holds_lease = scheduler.lease.is_valid(now);
    // With no slots the gateway only reads.
    let per_second = if plan == Some(0) { 0 } else { rate.per_second() };
    let fair = scheduler.account_share.standing().map_or(0, |standing| standing.slots.fair);
    let room = slots.available().max(as_usize(fair)).saturating_sub(used);
    AccountUse {
        slots: LimitUse {
            limit: as_u32(plan.unwrap_or(0)),
            in_force: as_u32(if holds_lease { slots.in_force() } else { used }),
            wanted: as_u32(used + ready),
        },
        submits: LimitUse {
            limit: per_second,
            in_force: if holds_lease { rate.most_in_force() } else { 0 },
            wanted: as_u32(rate.passed_lately(now) + ready.min(room)),
        },
        used: as_u32(used),
    }
}

/// Obeys the result of a renewal. Returns what the other gateways are to hear, so that they renew at once.
pub(crate) fn obey(
    scheduler: &Scheduler,
    said: AccountUse,
    standing: Standing,
    now: Timestamp,
) -> Vec<ClaimId> {
    let before = scheduler.slots.available();
    let slots = if standing.slots.is_whole() { usize::MAX } else { as_usize(standing.slots.share) };
    scheduler.slots.set_share(slots);
    scheduler.submit_rate.lock().set_share(standing.submits.share, now);
    let last = scheduler.account_share.0.lock().replace((said, standing));
    let shares = |standing: Standing| (standing.slots.share, standing.submits.share);
    if last.is_some_and(|(_, last)| shares(last) != shares(standing)) {
        let Standing { gateways, slots, submits, .. } = standing;
        tracing::debug!(
            gateways,
            slots = slots.share,
            submits = submits.share,
            "this gateway's shares of the account changed"
        );
    }
    if scheduler.slots.available() > before {
        scheduler.wake();
    }
    announcements(last, (said, standing))
}

/// Only changes are announced, so that gateways do not answer one another for ever.
fn announcements(
    last: Option<(AccountUse, Standing)>,
    (said, new): (AccountUse, Standing),
) -> Vec<ClaimId> {
    let is_owed = |said: AccountUse, standing: Standing| {
        standing.slots.is_owed(said.slots.wanted) || standing.submits.is_owed(said.submits.wanted)
    };
    let asks = is_owed(said, new) && !last.is_some_and(|(said, old)| is_owed(said, old));
    let gives = last.is_some_and(|(_, old)| {
        new.slots.held < old.slots.held || new.submits.held < old.submits.held
    });
    [(asks, ASKED), (gives, GIVEN)]
        .into_iter()
        .filter_map(|(is_so, what)| is_so.then_some(what))
        .collect()
}

/// Whether a renewal helps a gateway that waits for a part. The slots that are not needed here are no longer used, so that the
/// renewal can give them.
pub(crate) fn can_give(scheduler: &Scheduler, now: Timestamp) -> bool {
    let Some((said, standing)) = *scheduler.account_share.0.lock() else { return false };
    let uses = current_use(scheduler, now);
    let waits = standing.slots.is_owed(said.slots.wanted);
    if standing.slots.is_whole() || waits || uses.slots.in_force == 0 {
        return false;
    }
    if uses.slots.wanted < uses.slots.in_force {
        scheduler.slots.set_share(as_usize(uses.slots.wanted));
    }
    true
}

/// Whether others hold a part that is this gateway's.
pub(crate) fn is_owed(scheduler: &Scheduler, now: Timestamp) -> bool {
    let Some((_, standing)) = *scheduler.account_share.0.lock() else { return false };
    let uses = current_use(scheduler, now);
    standing.slots.is_owed(uses.slots.wanted) || standing.submits.is_owed(uses.submits.wanted)
}

/// Stops using the account before the lease is given up for a moment, because others may take the shares meanwhile.
pub(crate) fn give_up(scheduler: &Scheduler, now: Timestamp) {
    if scheduler.account_share.is_shared() {
        scheduler.slots.set_share(0);
        scheduler.submit_rate.lock().set_share(0, now);
    }
}

/// Whether a renewal before its time would help this gateway or the others, so long after the last one.
pub(crate) fn wants_renewal(scheduler: &Scheduler, since: Duration, now: Timestamp) -> bool {
    let Some((said, standing)) = *scheduler.account_share.0.lock() else { return false };
    let uses = current_use(scheduler, now);
    can_gain(said.slots, standing.slots, uses.slots, since)
        || can_gain(said.submits, standing.submits, uses.submits, since)
}

fn can_gain(said: LimitUse, granted: Granted, uses: LimitUse, since: Duration) -> bool {
    let is_unknown = said.limit == 0 && uses.limit == 0;
    if granted.is_whole() || is_unknown {
        return false;
    }
    let needs_more = uses.wanted > granted.share;
    // Others hold what is its own, and give it back soon.
    let is_owed = granted.share < granted.fair;
    // The others do not know yet.
    let is_news = said.wanted <= granted.share || said.limit != uses.limit;
    let gives = granted.held > granted.share.max(uses.in_force);
    (needs_more && (is_owed || is_news || since >= HUNGRY_EVERY)) || gives
}

// === impl AccountShare ===

impl AccountShare {
    fn standing(&self) -> Option<Standing> {
        self.0.lock().map(|(_, standing)| standing)
    }

    /// Whether other gateways, or what is left of them, have a part of the slots.
    pub(crate) fn is_shared(&self) -> bool {
        self.standing().is_some_and(|standing| !standing.slots.is_whole())
    }

    /// The slots that other gateways use; `None` if there are none.
    pub(crate) fn used_by_others(&self) -> Option<usize> {
        self.standing()
            .filter(|standing| !standing.slots.is_whole())
            .map(|standing| as_usize(standing.others_used))
    }
}

fn as_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(limit: u32, in_force: u32, wanted: u32) -> LimitUse {
        LimitUse { limit, in_force, wanted }
    }

    #[test]
    fn a_renewal_before_its_time_is_for_shares_that_are_owed_or_given() {
        let can_gain = |said, granted, uses| can_gain(said, granted, uses, Duration::from_secs(1));
        let fair = Granted { share: 3, held: 3, fair: 3 };
        assert!(!can_gain(uses(9, 3, 8), fair, uses(9, 3, 8)), "it has what it gets");
        let later = super::can_gain(uses(9, 3, 8), fair, uses(9, 3, 8), HUNGRY_EVERY);
        assert!(later, "somebody may be gone");
        assert!(can_gain(uses(9, 3, 2), fair, uses(9, 3, 8)), "the others do not know yet");
        assert!(can_gain(uses(0, 0, 8), fair, uses(9, 3, 8)), "the plan is known only now");
        let owed = Granted { fair: 5, ..fair };
        assert!(can_gain(uses(9, 3, 8), owed, uses(9, 3, 8)));
        assert!(!can_gain(uses(9, 3, 2), owed, uses(9, 3, 2)), "it needs no more");
        let gives = Granted { held: 6, ..fair };
        assert!(!can_gain(uses(9, 6, 2), gives, uses(9, 6, 2)), "six are in use");
        assert!(can_gain(uses(9, 6, 2), gives, uses(9, 3, 2)));
        assert!(!can_gain(uses(0, 6, 7), gives, uses(0, 2, 7)), "learned slots are not shared");
        assert!(!can_gain(uses(9, 9, 2), Granted::WHOLE, uses(9, 9, 90)), "nobody has more");
    }

    #[test]
    fn only_changes_are_announced_so_that_gateways_do_not_answer_one_another_for_ever() {
        let account = |wanted| AccountUse { slots: uses(6, 0, wanted), ..AccountUse::default() };
        let standing = |share, held, fair| {
            let slots = Granted { share, held, fair };
            Standing { slots, ..Standing::apart(3) }
        };
        let (waits, has) = ((account(9), standing(2, 2, 6)), (account(9), standing(6, 6, 6)));
        assert_eq!(announcements(Some((account(0), standing(2, 2, 2))), waits), [ASKED]);
        assert_eq!(announcements(None, waits), [ASKED]);
        assert_eq!(announcements(Some(waits), waits), []);
        assert_eq!(announcements(Some(waits), has), []);
        assert_eq!(announcements(Some(has), (account(0), standing(1, 1, 1))), [GIVEN]);
        let busy = (account(9), standing(3, 6, 3));
        assert_eq!(announcements(Some(has), busy), [], "all of it is still in use");
    }
}
