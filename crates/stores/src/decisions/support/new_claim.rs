//! Writes a claim that was admitted, together with its idempotency key: a new one, or the next generation of a failed one.

use domain::{
    claim::{Claim, ClaimState, KeyRule, NewClaim},
    fingerprint::KeyHash,
    ledger::Event,
    solve::Solve,
    time::Timestamp,
};

use crate::{
    Result,
    schema::tables::{Claims, Keyed, Keys},
    tx::{ReadTx, TypedRead, TypedWrite},
};

use super::{books, callbacks, context::DecisionCtx, dead_letters, indexes};

/// The waiting claim that a new claim becomes.
pub(crate) fn claim_of(new: &NewClaim, now: Timestamp) -> Claim {
    Claim {
        id: new.id,
        worker: new.worker.clone(),
        project: new.project.clone(),
        door: new.door,
        kind: new.challenge.kind().clone(),
        sitekey: new.challenge.sitekey().map(str::to_owned),
        pageurl: new.challenge.pageurl().map(|page| page.as_str().to_owned()),
        basis: new.basis.clone(),
        fingerprint: new.fingerprint,
        key: key_of(new),
        solve: None,
        state: ClaimState::Waiting,
        source: None,
        opened_at: now,
        deadline: new.deadline,
        ended_at: None,
        delivered_at: None,
        token: None,
        code: None,
        attempts: 0,
        polls: 0,
        cost: None,
        callback_url: new.callback_url.clone(),
        revives: new.revives,
        report: None,
        reopened: new.reopened,
        may_have_paid: false,
    }
}

/// Begins an admitted claim. The next generation of a failed one takes over from the failure first.
pub(crate) fn begin(ctx: &mut DecisionCtx<'_>, new: &NewClaim) -> Result<Claim> {
    let claim = claim_of(new, ctx.now);
    if claim.reopened > 0 {
        let before = indexes::existing_claim(ctx.tx, claim.id)?;
        ctx.record(&claim, Event::Reopened { generation: claim.generation() });
        dead_letters::take_over(ctx, &before)?;
        callbacks::keep_end(ctx.tx, &before)?;
    }
    Ok(claim)
}

pub(crate) fn key_of(new: &NewClaim) -> Option<KeyHash> {
    match new.key {
        KeyRule::Named(hash) | KeyRule::Derived { hash, .. } => Some(hash),
        KeyRule::Own => None,
    }
}

/// The claim that a key belongs to.
pub(crate) fn claim_by_key(tx: &dyn ReadTx, key: &KeyHash) -> Result<Option<Claim>> {
    match tx.get::<Keys>(key)? {
        Some(row) => tx.get::<Claims>(&row.claim),
        None => Ok(None),
    }
}

/// Writes the claim and its key, and counts it.
pub(crate) fn insert(ctx: &mut DecisionCtx<'_>, new: &NewClaim, claim: &Claim) -> Result<()> {
    if let Some(hash) = claim.key {
        let row = Keyed { claim: claim.id, fingerprint: new.fingerprint };
        ctx.tx.put::<Keys>(hash, row)?;
    }
    // In the sums each generation is a claim of the day it was made.
    books::count_new(ctx, claim);
    if new.reopened == 0 {
        return indexes::insert_claim(ctx.tx, claim);
    }
    let before = indexes::existing_claim(ctx.tx, claim.id)?;
    indexes::update_claim(ctx.tx, &before, claim)
}

/// Writes the claim as one more that waits for a solve in progress.
pub(crate) fn join(ctx: &mut DecisionCtx<'_>, new: &NewClaim, before: &Solve) -> Result<Claim> {
    let mut claim = begin(ctx, new)?;
    claim.solve = Some(before.id);
    ctx.record(&claim, Event::Joined);
    let mut solve = before.clone();
    solve.join(claim.id, claim.deadline);
    indexes::update_solve(ctx.tx, before, &solve)?;
    insert(ctx, new, &claim)?;
    Ok(claim)
}
