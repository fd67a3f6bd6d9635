//! Admits a claim: replays it under its key, serves it from stock, joins it to a solve in progress, or opens a solve, which
//! `start.rs` may start in the same decision.

use domain::{
    budget::{BudgetScope, Reservations},
    challenge::Sharing,
    claim::{Admission, Claim, ClaimState, KeyRule, NewClaim, Repeats, Source},
    ledger::{Counts, Event},
    money::Money,
    solve::{Origin, Solve, Stage},
    time::Timestamp,
};

use crate::{
    Result,
    schema::keys::starting_with,
    schema::tables::{Challenges, Claims, Joinable, Solves, Stock, Stocked, Table},
    tx::{Order, TypedRead, TypedWrite},
};

use super::reopen::{self, Reopening};
use super::start;
use super::support::{
    allocate::allotted,
    books,
    budgets::{self, Buyer},
    context::DecisionCtx,
    delivery::{deliver_token, expire_token, record_delivered},
    indexes, ledger, new_claim, pools, promote, repeats,
    retention::KEY_KEPT,
};

pub(crate) fn admit(ctx: &mut DecisionCtx<'_>, new: &NewClaim) -> Result<Admission> {
    if ctx.tx.has::<Claims>(&new.id)? || ctx.tx.has::<Solves>(&new.solve)? {
        return Ok(Admission::NameTaken);
    }
    let known = new_claim::key_of(new).map(|key| new_claim::claim_by_key(ctx.tx, &key));
    let known = known.transpose()?.flatten();
    match known.filter(|claim| is_replayed(&new.key, claim, ctx.now)) {
        Some(claim) if claim.fingerprint != new.fingerprint => Ok(Admission::Mismatch(claim.id)),
        Some(claim) => match reopen::prepare(ctx, new, &claim)? {
            Reopening::Now(next) => reopen::reopen(ctx, &next, &claim),
            Reopening::NotYet => {
                let claim = promote::promote_claim(ctx, claim, new)?;
                replay(ctx, new, claim).map(Admission::Replayed)
            }
            Reopening::Never(claim) => replay(ctx, new, *claim).map(Admission::Replayed),
        },
        None => admit_new(ctx, new),
    }
}

/// Admits a claim whose key is not known: from stock, to a solve in progress, or with a solve of its own.
pub(crate) fn admit_new(ctx: &mut DecisionCtx<'_>, new: &NewClaim) -> Result<Admission> {
    if let Some(stocked) = admit_from_stock(ctx, new)? {
        return Ok(stocked);
    }
    let is_live = !new.is_revival();
    if is_live && let Some(claim) = promote::take_over(ctx, new)? {
        return Ok(Admission::Joined(claim));
    }
    if let Some(solve) = find_joinable(ctx, new)? {
        let solve = if is_live { promote::promote_solve(ctx, &solve, new.solve)? } else { solve };
        return Ok(Admission::Joined(new_claim::join(ctx, new, &solve)?));
    }
    if new.deadline < new.soonest {
        return Ok(Admission::TooLate);
    }
    if let Some(reached) = budgets::exceeded(ctx, &buyer(new), new.price)? {
        return Ok(Admission::OverBudget(reached));
    }
    pools::count_arrival(ctx, new.fingerprint, false)?;
    open(ctx, new)
}

// === replay ===

/// Whether a key still replays its claim. A worker's own key does so for a day after any end. A derived key does so while
/// the work is in flight, and then for the reuse window while the token is usable.
fn is_replayed(rule: &KeyRule, claim: &Claim, now: Timestamp) -> bool {
    let Some(ended_at) = claim.ended_at else { return true };
    match rule {
        KeyRule::Named(_) => now < ended_at.plus(KEY_KEPT),
        KeyRule::Derived { window, .. } => {
            now < ended_at.plus(*window)
                && claim.token.as_ref().is_some_and(|token| token.is_usable(now))
        }
        KeyRule::Own => false,
    }
}

/// Answers with the claim as it stands. The first replay is an entry; later ones are counted, because a worker may repeat a
/// key without end.
fn replay(ctx: &mut DecisionCtx<'_>, new: &NewClaim, claim: Claim) -> Result<Claim> {
    let before = repeats::add(ctx.tx, claim.id, Repeats { replayed: 1, ..Repeats::default() })?;
    let more = books::repeated(&claim, new);
    if before.replayed == 0 {
        ctx.record_with(&claim, Event::Replayed, &more);
    } else {
        let mut counts = ledger::counts_of(&Event::Replayed);
        counts.add(&more);
        ctx.count(&(&claim).into(), &counts);
    }
    match (claim.state, claim.token.clone()) {
        (ClaimState::Served, Some(token)) if !token.is_usable(ctx.now) => {
            expire_token(ctx, &claim, &token)
        }
        (ClaimState::Served, Some(token)) if new.collect => deliver_token(ctx, claim, &token),
        (
            ClaimState::Waiting
            | ClaimState::Served
            | ClaimState::Failed
            | ClaimState::Withdrawn
            | ClaimState::Lapsed,
            _,
        ) => Ok(claim),
    }
}

// === stock ===

/// Admits a claim from stock, if there is a token for it.
pub(crate) fn admit_from_stock(
    ctx: &mut DecisionCtx<'_>,
    new: &NewClaim,
) -> Result<Option<Admission>> {
    let Some(stocked) = take_stock(ctx, new)? else { return Ok(None) };
    pools::count_arrival(ctx, new.fingerprint, true)?;
    Ok(Some(Admission::Stocked(serve(ctx, new, stocked)?)))
}

/// Takes the exclusive token that expires first out of the stock, or reads the shared answer that expires last. A worker
/// without room in its budget gets only what others left over.
fn take_stock(ctx: &mut DecisionCtx<'_>, new: &NewClaim) -> Result<Option<Stocked>> {
    let exclusive = new.challenge.kind().sharing() == Sharing::Exclusive;
    let found = match in_stock(ctx, new, exclusive, 1)?.pop() {
        Some(first) if !budgets::may_take(ctx, &first.1, &buyer(new), new.price)? => {
            let all = in_stock(ctx, new, exclusive, usize::MAX)?;
            all.into_iter().find(|(_, stocked)| !budgets::is_of_pool(stocked))
        }
        first => first,
    };
    let Some((key, stocked)) = found else { return Ok(None) };
    if exclusive {
        let (fingerprint, usable_until, solve) = key;
        pools::take_stock(ctx.tx, (usable_until, fingerprint, solve))?;
    }
    Ok(Some(stocked))
}

/// The usable tokens, those to hand out first at the beginning.
fn in_stock(
    ctx: &DecisionCtx<'_>,
    new: &NewClaim,
    exclusive: bool,
    limit: usize,
) -> Result<Vec<(<Stock as Table>::Key, Stocked)>> {
    let usable = pools::usable_range(new.fingerprint, ctx.now);
    let order = if exclusive { Order::Rising } else { Order::Falling };
    ctx.tx.scan::<Stock>(usable, order, limit)
}

fn serve(ctx: &mut DecisionCtx<'_>, new: &NewClaim, stocked: Stocked) -> Result<Claim> {
    let mut claim = new_claim::begin(ctx, new)?;
    claim.cost = Some(Money::ZERO);
    if budgets::is_of_pool(&stocked) {
        let cost = stocked.token.cost.or(new.price);
        budgets::charge_stocked(ctx, &new.worker, ctx.now.day(), cost)?;
        claim.cost = stocked.token.cost;
        books::pass_on(ctx, &stocked, &claim);
    }
    let token = stocked.token;
    claim.state = ClaimState::Served;
    claim.source = Some(Source::Stock);
    claim.ended_at = Some(ctx.now);
    let counts = Counts { stocked: 1, ..Counts::default() };
    ctx.record_with(&claim, allotted(&token, Source::Stock), &counts);
    if new.collect {
        claim.delivered_at = Some(ctx.now);
        record_delivered(ctx, &claim, &token);
    }
    claim.token = Some(token);
    new_claim::insert(ctx, new, &claim)?;
    Ok(claim)
}

// === join ===

fn find_joinable(ctx: &DecisionCtx<'_>, new: &NewClaim) -> Result<Option<Solve>> {
    let rows = ctx.tx.scan::<Joinable>(starting_with(new.fingerprint), Order::Rising, 1)?;
    match rows.first() {
        Some(((_, id), ())) => indexes::existing_solve(ctx.tx, *id).map(Some),
        None => Ok(None),
    }
}

// === open ===

fn buyer(new: &NewClaim) -> Buyer {
    let scope = BudgetScope::Worker(new.worker.clone());
    Buyer { scope, own: new.allowance, account: new.account }
}

/// Opens a solve for the claim. It waits in the queue, unless the gateway can submit it at once.
fn open(ctx: &mut DecisionCtx<'_>, new: &NewClaim) -> Result<Admission> {
    let mut claim = new_claim::begin(ctx, new)?;
    claim.solve = Some(new.solve);
    ctx.record(&claim, Event::Opened { basis: new.basis.as_ref().to_owned() });
    if let Some(carried) = Event::carried(&new.challenge) {
        ctx.record(&claim, carried);
    }
    let mut solve = solve_of(new, ctx.now);
    budgets::reserve(ctx, &buyer(new), &mut solve)?;
    let lease = start::start(ctx, new, &mut solve)?;
    indexes::insert_solve(ctx.tx, &solve)?;
    ctx.tx.put::<Challenges>(new.solve, new.challenge.clone())?;
    new_claim::insert(ctx, new, &claim)?;
    Ok(match lease {
        Some(lease) => Admission::Started(claim, Box::new(lease)),
        None => Admission::Opened(claim),
    })
}

fn solve_of(new: &NewClaim, now: Timestamp) -> Solve {
    let origin = match new.revives.filter(|_| new.is_revival()) {
        Some(letter) => Origin::Revived { letter, claim: new.id },
        None => Origin::Claim(new.id),
    };
    Solve {
        id: new.solve,
        origin,
        fingerprint: new.fingerprint,
        kind: new.challenge.kind().clone(),
        worker: new.worker.clone(),
        project: new.project.clone(),
        claims: vec![new.id],
        stage: Stage::Queued,
        fence: domain::lease::Fence::default(),
        holder: None,
        attempt: 0,
        nonce: None,
        task: None,
        opened_at: now,
        wanted_until: new.deadline,
        accepted_at: None,
        due: now,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        price: new.price,
        policy: new.policy,
        ended_at: None,
        reservations: Reservations::default(),
    }
}
