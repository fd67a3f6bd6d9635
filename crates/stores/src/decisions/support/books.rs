//! Counts claims, what became of them, and what their tokens cost, in the daily totals. A claim is counted on the day it was
//! made, whenever it ends, so that every day closes. Whoever changes the state of a claim calls [`count_move`].

use domain::{
    claim::{Claim, ClaimState, NewClaim, Source},
    ledger::Counts,
    money::Money,
};

use crate::schema::tables::Stocked;

use super::context::DecisionCtx;

/// Counts a new claim, in the state it has.
pub(crate) fn count_new(ctx: &mut DecisionCtx<'_>, claim: &Claim) {
    let mut counts = entered(claim);
    counts.claims = 1;
    ctx.count_on(claim.opened_at.day(), &claim.into(), &counts);
}

/// Counts the change of a claim's state: what the claim was counts no longer, what it is now counts.
pub(crate) fn count_move(ctx: &mut DecisionCtx<'_>, before: &Claim, after: &Claim) {
    if before.state == after.state {
        return;
    }
    let mut counts = entered(after);
    counts.add(&left(before));
    ctx.count_on(after.opened_at.day(), &after.into(), &counts);
}

/// Moves the cost of a pool's token to the claim that it serves. Both sides are counted on the same day, so that the sum of
/// the day stays.
pub(crate) fn pass_on(ctx: &mut DecisionCtx<'_>, stocked: &Stocked, claim: &Claim) {
    let (given, taken) = match stocked.token.cost {
        Some(cost) => (
            Counts { given: cost, ..Counts::default() },
            Counts { taken: cost, ..Counts::default() },
        ),
        None => (
            Counts { given_unknown: 1, ..Counts::default() },
            Counts { taken_unknown: 1, ..Counts::default() },
        ),
    };
    ctx.count(&stocked.into(), &given);
    ctx.count(&claim.into(), &taken);
}

/// The counts of a repeated request. It saves a payment when the claim it repeats waits or has its token.
pub(crate) fn repeated(claim: &Claim, new: &NewClaim) -> Counts {
    let worth = match claim.state {
        ClaimState::Waiting => new.price,
        ClaimState::Served => claim.token.as_ref().and_then(|token| token.cost).or(new.price),
        ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed => {
            return Counts::default();
        }
    };
    Counts { spared_repeats: 1, ..saved(worth) }
}

fn entered(claim: &Claim) -> Counts {
    let none = Counts::default();
    match claim.state {
        ClaimState::Waiting => none,
        ClaimState::Served => match spared(claim) {
            Some(saved) => Counts { served: 1, spared: 1, ..saved },
            None => Counts { served: 1, ..none },
        },
        ClaimState::Failed => Counts { failed: 1, ..none },
        ClaimState::Lapsed => Counts { lapsed: 1, ..none },
        ClaimState::Withdrawn => Counts { withdrawn: 1, ..none },
    }
}

fn left(claim: &Claim) -> Counts {
    let none = Counts::default();
    match claim.state {
        ClaimState::Served => match spared(claim) {
            Some(Counts { saved, saved_unknown, .. }) => Counts {
                served_left: 1,
                spared_left: 1,
                saved_left: saved,
                saved_unknown_left: saved_unknown,
                ..none
            },
            None => Counts { served_left: 1, ..none },
        },
        // These stay: a claim that is opened again counts as another one.
        ClaimState::Waiting | ClaimState::Failed | ClaimState::Lapsed | ClaimState::Withdrawn => {
            none
        }
    }
}

/// What a served claim saved, if it was served without a new payment: the cost of the token that others paid for. A claim
/// that paid, or may have paid, for an attempt of its own or for the token of a pool saved nothing.
fn spared(claim: &Claim) -> Option<Counts> {
    let token = claim.token.as_ref()?;
    let is_own = claim.source == Some(Source::Upstream);
    (!is_own && claim.cost == Some(Money::ZERO)).then(|| saved(token.cost))
}

fn saved(worth: Option<Money>) -> Counts {
    Counts {
        saved: worth.unwrap_or_default(),
        saved_unknown: u64::from(worth.is_none()),
        ..Counts::default()
    }
}
