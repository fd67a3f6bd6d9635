//! Decides which claim gets a token: the claim it was solved for, else the oldest claim that waits for the same challenge,
//! else the stock. The token changes its owner in one transaction, so an exclusive token never has two.

use domain::{
    challenge::Sharing,
    claim::{Claim, ClaimState, Source},
    fingerprint::Fingerprint,
    id::ClaimId,
    ledger::Event,
    money::Money,
    retry::{Code, own},
    solve::Solve,
    time::Timestamp,
    token::Token,
};

use crate::{
    Result,
    schema::keys::starting_with,
    schema::tables::{Expiries, Stock, Stocked, Waiting},
    tx::{Order, TypedRead, TypedWrite},
};

use super::{
    books, budgets,
    context::DecisionCtx,
    effort::{self, Effort},
    fail, indexes, pools,
};

/// Gives the usable token of an ended solve to the claims that wait for it, and the rest to the stock.
pub(crate) fn harvest(
    ctx: &mut DecisionCtx<'_>,
    solve: &Solve,
    first: Option<ClaimId>,
    token: Token,
) -> Result<()> {
    let effort = Effort::with_answer(solve, token.cost);
    let stocked = Stocked {
        token,
        kind: solve.kind.clone(),
        worker: solve.worker.clone(),
        project: solve.project.clone(),
    };
    match solve.sharing() {
        Sharing::Exclusive => {
            let recipient = match first {
                Some(id) => recipient(ctx, id, &effort)?,
                None => None,
            };
            allocate(ctx, solve.fingerprint, stocked, recipient, &effort)
        }
        Sharing::Bound | Sharing::Shared => {
            // One list for all: on a stale cache, serving a claim need not shorten the list, and a loop would not end.
            for claim in waiting(ctx, solve.fingerprint, usize::MAX)? {
                let cost = cost_of(ctx, &claim, &stocked, &effort)?;
                serve(ctx, &claim, &stocked.token, (&effort, cost))?;
            }
            add_to_stock(ctx, solve.fingerprint, stocked)
        }
    }
}

/// The token that only this claim has, that is usable and that nobody fetched: it can serve another claim.
pub(crate) fn unfetched_token(claim: &Claim, now: Timestamp) -> Option<Token> {
    let own = claim.kind.sharing() == Sharing::Exclusive && claim.delivered_at.is_none();
    claim.token.clone().filter(|token| own && token.is_usable(now))
}

/// Ends a served claim whose token nobody fetched. The token goes to the oldest waiting claim, or to stock.
pub(crate) fn return_token(
    ctx: &mut DecisionCtx<'_>,
    before: &Claim,
    token: Token,
    state: ClaimState,
    code: Option<Code>,
) -> Result<Claim> {
    let mut claim = before.clone();
    claim.state = state;
    claim.token = None;
    claim.ended_at = Some(ctx.now);
    claim.code.clone_from(&code);
    claim.may_have_paid = effort::may_have_paid_for(ctx.tx, before)?;
    ctx.record(&claim, Event::Ended { state, code });
    books::count_move(ctx, before, &claim);
    indexes::update_claim(ctx.tx, before, &claim)?;
    let stocked = Stocked {
        token,
        kind: claim.kind.clone(),
        worker: claim.worker.clone(),
        project: claim.project.clone(),
    };
    allocate(ctx, claim.fingerprint, stocked, None, &Effort::NONE)?;
    Ok(claim)
}

fn allocate(
    ctx: &mut DecisionCtx<'_>,
    fingerprint: Fingerprint,
    stocked: Stocked,
    recipient: Option<Claim>,
    effort: &Effort,
) -> Result<()> {
    let recipient = match recipient {
        Some(claim) => Some(claim),
        None => waiting(ctx, fingerprint, 1)?.pop(),
    };
    match recipient {
        Some(claim) => {
            if budgets::is_of_pool(&stocked) {
                let cost = stocked.token.cost;
                budgets::charge_in_place(ctx, &claim.worker, claim.solve, cost)?;
                books::pass_on(ctx, &stocked, &claim);
            }
            let cost = cost_of(ctx, &claim, &stocked, effort)?;
            serve(ctx, &claim, &stocked.token, (effort, cost))
        }
        None => add_to_stock(ctx, fingerprint, stocked),
    }
}

fn add_to_stock(
    ctx: &mut DecisionCtx<'_>,
    fingerprint: Fingerprint,
    stocked: Stocked,
) -> Result<()> {
    let Token { solve, usable_until, ref task, .. } = stocked.token;
    ctx.record(&stocked, Event::Banked { task: task.clone(), usable_until });
    ctx.tx.put::<Expiries>((usable_until, fingerprint, solve), ())?;
    ctx.tx.put::<Stock>((fingerprint, usable_until, solve), stocked)
}

/// Ends a waiting claim with a token. If the token came from another solve, the claim leaves its own.
fn serve(
    ctx: &mut DecisionCtx<'_>,
    before: &Claim,
    token: &Token,
    (effort, cost): (&Effort, Option<Money>),
) -> Result<()> {
    let source = if effort.is_for(before.id) { Source::Upstream } else { Source::Join };
    let mut claim = before.clone();
    claim.state = ClaimState::Served;
    claim.source = Some(source);
    claim.ended_at = Some(ctx.now);
    claim.attempts = effort.attempts;
    claim.polls = effort.polls;
    claim.cost = cost;
    claim.token = Some(token.clone());
    ctx.record(&claim, allotted(token, source));
    books::count_move(ctx, before, &claim);
    pools::update(ctx.tx, claim.fingerprint, |pool| pool.served += 1)?;
    ctx.ended.push(claim.id);
    indexes::update_claim(ctx.tx, before, &claim)?;
    match before.solve {
        Some(solve) if solve != token.solve => {
            fail::leave_solve(ctx, claim.id, solve, own::NOT_NEEDED)?;
            Ok(())
        }
        Some(_) | None => Ok(()),
    }
}

/// What a claim costs that is served with this token. The solve that was opened for it counts, even when the token is from
/// another one; so does the token of a pool. A token that others left over is free.
fn cost_of(
    ctx: &DecisionCtx<'_>,
    claim: &Claim,
    stocked: &Stocked,
    effort: &Effort,
) -> Result<Option<Money>> {
    if effort.is_for(claim.id) {
        return Ok(effort.cost);
    }
    let own = match claim.solve.filter(|solve| *solve != stocked.token.solve) {
        Some(id) => Effort::without_answer(&indexes::existing_solve(ctx.tx, id)?).cost_of(claim.id),
        None => Some(Money::ZERO),
    };
    let passed_on =
        if budgets::is_of_pool(stocked) { stocked.token.cost } else { Some(Money::ZERO) };
    Ok(own.zip(passed_on).map(|(own, passed_on)| own + passed_on))
}

/// The event of a claim that gets a token.
pub(crate) fn allotted(token: &Token, source: Source) -> Event {
    Event::Allotted {
        paid_by: token.solve,
        task: token.task.clone(),
        source,
        usable_until: token.usable_until,
    }
}

/// The claim that a token was solved for, if it still waits. An unattended claim ends, and its token goes to another.
fn recipient(ctx: &mut DecisionCtx<'_>, id: ClaimId, effort: &Effort) -> Result<Option<Claim>> {
    let claim = indexes::existing_claim(ctx.tx, id)?;
    if claim.state != ClaimState::Waiting {
        return Ok(None);
    }
    if indexes::is_unattended(&claim) {
        fail::end_unattended(ctx, &claim, effort)?;
        return Ok(None);
    }
    Ok(Some(claim))
}

/// The claims that wait for a token of this fingerprint, oldest first.
fn waiting(ctx: &DecisionCtx<'_>, fingerprint: Fingerprint, limit: usize) -> Result<Vec<Claim>> {
    let rows = ctx.tx.scan::<Waiting>(starting_with(fingerprint), Order::Rising, limit)?;
    rows.into_iter().map(|((_, _, id), ())| indexes::existing_claim(ctx.tx, id)).collect()
}
