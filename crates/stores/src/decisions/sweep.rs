//! The sweep: claims past their deadline lapse, tokens that nobody fetched serve other claims, expired tokens leave the stock
//! and lose their text, their claims lapse if nobody fetched them, and old records are deleted.

use std::time::Duration;

use domain::{
    claim::{Claim, ClaimState},
    ports::{SweepRequest, Swept},
    retry::{Code, own},
    solve::Stage,
    token::MIN_LEFT,
};

use crate::{
    Result,
    schema::keys::up_to,
    schema::tables::{Expiries, Watched},
    tx::{Order, TypedRead},
};

use super::{
    advance::is_paused,
    support::{
        allocate::{return_token, unfetched_token},
        context::DecisionCtx,
        dead_letters, delivery,
        effort::Effort,
        fail, indexes, pools,
        retention::{self, Archival},
    },
};

pub(crate) fn sweep(ctx: &mut DecisionCtx<'_>, request: &SweepRequest) -> Result<Swept> {
    let limit = request.limit;
    let mut swept = Swept::default();
    lapse_watched(ctx, request, &mut swept)?;
    swept.wasted += discard_expired_stock(ctx, limit)?;
    let archival = Archival::of(ctx.tx, &request.history)?;
    swept.dropped = retention::delete_expired(ctx, archival, limit)?;
    Ok(swept)
}

fn lapse_watched(
    ctx: &mut DecisionCtx<'_>,
    request: &SweepRequest,
    swept: &mut Swept,
) -> Result<()> {
    let rows = ctx.tx.scan::<Watched>(up_to(ctx.now), Order::Rising, request.limit)?;
    let mut served = Vec::new();
    for ((_, id), ()) in rows {
        let claim = indexes::existing_claim(ctx.tx, id)?;
        if claim.state == ClaimState::Waiting {
            lapse_waiting(ctx, &claim, request.trouble.as_ref())?;
            swept.lapsed.push(id);
        } else {
            served.push(claim);
        }
    }
    // These come last, so that no token goes to a claim that lapses in the same sweep.
    for claim in served {
        lapse_unfetched(ctx, &claim, swept)?;
    }
    Ok(())
}

fn lapse_waiting(ctx: &mut DecisionCtx<'_>, before: &Claim, trouble: Option<&Code>) -> Result<()> {
    let deadline = Code::from(own::DEADLINE);
    let Some(id) = before.solve else {
        fail::end_claim(ctx, before, ClaimState::Lapsed, Some(deadline), &Effort::NONE)?;
        return Ok(());
    };
    let solve = indexes::existing_solve(ctx.tx, id)?;
    let code = match trouble.filter(|_| solve.stage == Stage::Queued) {
        _ if is_paused(ctx, &solve)? => Code::from(own::PAUSED),
        Some(trouble) => trouble.clone(),
        None => deadline,
    };
    let effort = Effort::without_answer(&solve);
    fail::end_claim(ctx, before, ClaimState::Lapsed, Some(code.clone()), &effort)?;
    let left = fail::leave_solve(ctx, before.id, id, code.as_str())?;
    match left.filter(|solve| solve.stage != Stage::Ready) {
        Some(left) => dead_letters::write_lapsed(ctx, &left, &[before.id], &code),
        // Others still wait for it. Once it is paid for, its answer is kept for this claim, too.
        None if solve.is_unpaid() || solve.stage == Stage::Intent => {
            let solve = indexes::existing_solve(ctx.tx, id)?;
            dead_letters::write_lapsed(ctx, &solve, &[before.id], &code)
        }
        None => Ok(()),
    }
}

fn lapse_unfetched(ctx: &mut DecisionCtx<'_>, claim: &Claim, swept: &mut Swept) -> Result<()> {
    if let Some(token) = unfetched_token(claim, ctx.now) {
        let code = Some(Code::from(own::DEADLINE));
        return_token(ctx, claim, token, ClaimState::Lapsed, code)?;
        swept.lapsed.push(claim.id);
        swept.banked += 1;
    } else if let Some(token) = &claim.token
        && delivery::expire_token(ctx, claim, token)?.state == ClaimState::Lapsed
    {
        swept.lapsed.push(claim.id);
        swept.wasted += usize::from(indexes::is_unfetched(claim));
    }
    Ok(())
}

/// Removes expired tokens from stock. Returns how many were wasted.
fn discard_expired_stock(ctx: &mut DecisionCtx<'_>, limit: usize) -> Result<usize> {
    let expired = ctx.now.plus(MIN_LEFT).minus(Duration::from_millis(1));
    let rows = ctx.tx.scan::<Expiries>(up_to(expired), Order::Rising, limit)?;
    rows.into_iter().map(|(place, ())| pools::discard(ctx, place)).sum()
}
