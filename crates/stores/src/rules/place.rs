//! Who gets a token: the claim it was solved for, else the oldest that waits for one like it, else the stock; one
//! that died on the way is wasted. Taking and allotting are one step, so an exclusive token has one owner ever.

use std::ops::RangeInclusive;

use domain::{
    challenge::Sharing,
    claim::{Claim, ClaimState, Source},
    fingerprint::Fingerprint,
    id::{ClaimId, SolveId},
    ledger::Event,
    money::Money,
    ports::StoreError,
    retry::own,
    solve::{Origin, Solve},
    time::Timestamp,
    token::Token,
};

use crate::{
    tables::{Expiries, Stock, Stocked, Waiting},
    tx::{Order, TypedRead, TypedWrite},
};

use super::{
    hurry::{self, is_for_nobody},
    keep, pools,
    step::{About, Step},
};

/// What a solve tells a claim it ends.
pub(super) struct Effort {
    pub(super) origin: Option<Origin>,
    pub(super) attempts: u32,
    pub(super) polls: u32,
    /// What it cost, the token's own price included.
    pub(super) cost: Option<Money>,
}

/// Gives a usable token of an ended solve to those who wait, and what is left to the stock.
pub(super) fn harvest(
    step: &mut Step<'_>,
    solve: &Solve,
    first: Option<ClaimId>,
    token: Token,
) -> Result<(), StoreError> {
    let effort = Effort::of(solve, token.cost);
    let stocked = Stocked {
        token,
        kind: solve.kind.clone(),
        worker: solve.worker.clone(),
        project: solve.project.clone(),
    };
    match solve.sharing() {
        Sharing::Exclusive => {
            let heir = match first {
                Some(id) => heir(step, id, &effort)?,
                None => None,
            };
            place(step, solve.fingerprint, stocked, heir, &effort)
        }
        Sharing::Bound | Sharing::Shared => {
            // Listed once: a list that is out of date need not get shorter by serving who is on it.
            for claim in waiting(step, solve.fingerprint, usize::MAX)? {
                serve(step, &claim, &stocked.token, &effort)?;
            }
            bank(step, solve.fingerprint, stocked)
        }
    }
}

/// Passes on a usable exclusive token that its claim gave back: to the oldest waiting claim, or to stock.
pub(super) fn pass_on(step: &mut Step<'_>, from: &Claim, token: Token) -> Result<(), StoreError> {
    let stocked = Stocked {
        token,
        kind: from.kind.clone(),
        worker: from.worker.clone(),
        project: from.project.clone(),
    };
    place(step, from.fingerprint, stocked, None, &Effort::NONE)
}

fn place(
    step: &mut Step<'_>,
    fingerprint: Fingerprint,
    stocked: Stocked,
    heir: Option<Claim>,
    effort: &Effort,
) -> Result<(), StoreError> {
    let heir = match heir {
        Some(claim) => Some(claim),
        None => waiting(step, fingerprint, 1)?.pop(),
    };
    match heir {
        Some(claim) => serve(step, &claim, &stocked.token, effort),
        None => bank(step, fingerprint, stocked),
    }
}

fn bank(step: &mut Step<'_>, fingerprint: Fingerprint, stocked: Stocked) -> Result<(), StoreError> {
    let Token { solve, usable_until, ref task, .. } = stocked.token;
    step.tell(&stocked, Event::Banked { task: task.clone(), usable_until });
    step.tx.put::<Expiries>((usable_until, fingerprint, solve), ())?;
    step.tx.put::<Stock>((fingerprint, usable_until, solve), stocked)
}

/// Ends a waiting claim with a token. Its own solve, when that was another one, may be no longer needed.
fn serve(
    step: &mut Step<'_>,
    before: &Claim,
    token: &Token,
    effort: &Effort,
) -> Result<(), StoreError> {
    let own = effort.is_for(before.id);
    let mut claim = before.clone();
    claim.state = ClaimState::Served;
    claim.source = Some(if own { Source::Upstream } else { Source::Join });
    claim.ended_at = Some(step.now);
    claim.attempts = effort.attempts;
    claim.polls = effort.polls;
    claim.cost = if own { effort.cost } else { Some(Money::ZERO) };
    claim.token = Some(token.clone());
    tell_allotted(step, &claim, token);
    pools::served(step, claim.fingerprint)?;
    step.ended.push(claim.id);
    keep::claim(step.tx, before, &claim)?;
    match before.solve {
        Some(solve) if solve != token.solve => {
            leave(step, claim.id, solve, own::NOT_NEEDED)?;
            Ok(())
        }
        Some(_) | None => Ok(()),
    }
}

/// Says that the token is the claim's.
pub(super) fn tell_allotted(step: &mut Step<'_>, claim: &Claim, token: &Token) {
    let source = claim.source.unwrap_or(Source::Stock);
    step.tell(claim, allotted(token, source));
}

/// The entry of an allotment.
pub(super) fn allotted(token: &Token, source: Source) -> Event {
    Event::Allotted {
        paid_by: token.solve,
        task: token.task.clone(),
        source,
        usable_until: token.usable_until,
    }
}

/// Takes a claim off a solve. When it was the last, unsent work ends and paid work goes on without it; the result is
/// the solve that nobody wants any more.
pub(super) fn leave(
    step: &mut Step<'_>,
    claim: ClaimId,
    solve: SolveId,
    code: &str,
) -> Result<Option<Solve>, StoreError> {
    let before = keep::named_solve(step.tx, solve)?;
    let mut after = before.clone();
    after.claims.retain(|id| *id != claim);
    let last = after.claims.is_empty();
    if last {
        let events = after.abandon(code, step.now);
        step.tell_all(&after, events);
    }
    keep::solve(step.tx, &before, &after)?;
    Ok(last.then_some(after))
}

/// The token died before anybody could have it.
pub(super) fn waste(step: &mut Step<'_>, about: impl Into<About>, token: &Token) {
    step.tell(about, Event::Wasted { task: token.task.clone() });
}

/// The claim it was solved for, if it still waits. One that waits for nobody has done its work and leaves the token.
fn heir(step: &mut Step<'_>, id: ClaimId, effort: &Effort) -> Result<Option<Claim>, StoreError> {
    let claim = keep::named_claim(step.tx, id)?;
    if claim.state != ClaimState::Waiting {
        return Ok(None);
    }
    if is_for_nobody(&claim) {
        hurry::pass_on(step, &claim, effort)?;
        return Ok(None);
    }
    Ok(Some(claim))
}

/// Those who wait for a token of this fingerprint, oldest first.
fn waiting(
    step: &Step<'_>,
    fingerprint: Fingerprint,
    limit: usize,
) -> Result<Vec<Claim>, StoreError> {
    let rows = step.tx.scan::<Waiting>(waiting_for(fingerprint), Order::Rising, limit)?;
    rows.into_iter().map(|((_, _, id), ())| keep::named_claim(step.tx, id)).collect()
}

fn waiting_for(fingerprint: Fingerprint) -> RangeInclusive<(Fingerprint, Timestamp, ClaimId)> {
    let edge = |n| (fingerprint, Timestamp::from_millis(n), ClaimId::from_number(n));
    edge(0)..=edge(u64::MAX)
}

// === impl Effort ===

impl Effort {
    /// Somebody else's.
    pub(super) const NONE: Self = Self { origin: None, attempts: 0, polls: 0, cost: None };

    /// Whether the claim bears its cost.
    pub(super) fn is_for(&self, claim: ClaimId) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.is_for(claim))
    }

    /// What `solve` took without bringing anything; unknown while an attempt is out.
    pub(super) fn so_far(solve: &Solve) -> Self {
        Self::of(solve, (!solve.is_paying()).then_some(Money::ZERO))
    }

    /// What `solve` took, with the price of its last attempt.
    pub(super) fn of(solve: &Solve, last: Option<Money>) -> Self {
        let cost = solve.spent().zip(last).map(|(spent, last)| spent + last);
        Self {
            origin: Some(solve.origin.clone()),
            attempts: solve.attempt,
            polls: solve.polls,
            cost,
        }
    }
}
