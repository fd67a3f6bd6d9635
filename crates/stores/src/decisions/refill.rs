//! Pools and their refills. One holder at a time controls a pool. It opens the solves that the pool is short of, as far as
//! the pool's waste allowance permits.

use std::sync::Arc;

use domain::{
    actor::Actor,
    admin_action::AdminAction,
    budget::{BudgetScope, Reservations},
    fingerprint::Fingerprint,
    id::{HolderId, SolveId},
    ledger::Event,
    pool::{Expectation, Pool, PoolId, StandingOrder},
    ports::{RefillRequest, Refilled},
    solve::{AmbiguousPolicy, Origin, Policy, Solve, Stage},
    time::Timestamp,
    token::MIN_LEFT,
};

use crate::{
    Result,
    schema::tables::{Challenges, Pools, Solves},
    tx::{TypedRead, TypedWrite},
};

use super::{
    pause::pauses,
    support::{
        budgets::{self, Buyer},
        context::DecisionCtx,
        indexes,
        pools::{coming, update, usable},
    },
};

/// Sets the standing order of a pool, or removes the pool. A changed order keeps what the pool has learned.
pub(crate) fn set_pool(
    ctx: &mut DecisionCtx<'_>,
    fingerprint: Fingerprint,
    order: Option<&StandingOrder>,
    by: Option<&Actor>,
) -> Result<Option<Pool>> {
    let Some(order) = order else { return close(ctx, fingerprint, by) };
    let before = ctx.tx.get::<Pools>(&fingerprint)?;
    let pool = match before {
        Some(pool) if pool.order == *order => return Ok(Some(pool)),
        Some(pool) => Pool { order: order.clone(), ..pool },
        None => Pool::new(fingerprint, order.clone(), ctx.now),
    };
    if let Some(by) = by {
        let StandingOrder { level, most, waste, .. } = *order;
        ctx.administered(&pool, by, AdminAction::PoolSet { pool: pool.id(), level, most, waste });
    }
    ctx.tx.put::<Pools>(fingerprint, pool.clone())?;
    Ok(Some(pool))
}

fn close(
    ctx: &mut DecisionCtx<'_>,
    fingerprint: Fingerprint,
    by: Option<&Actor>,
) -> Result<Option<Pool>> {
    let closed = ctx.tx.take::<Pools>(&fingerprint)?;
    if let (Some(pool), Some(by)) = (&closed, by) {
        ctx.administered(pool, by, AdminAction::PoolClosed { pool: pool.id() });
    }
    Ok(closed)
}

/// Announces demand that the pool should expect.
pub(crate) fn expect(
    ctx: &mut DecisionCtx<'_>,
    fingerprint: Fingerprint,
    expectation: Expectation,
    by: Option<&Actor>,
) -> Result<Option<Pool>> {
    let Expectation { left: count, at } = expectation;
    let now = ctx.now;
    update(ctx.tx, fingerprint, |pool| pool.expect(count, at, now))?;
    let pool = ctx.tx.get::<Pools>(&fingerprint)?;
    if let (Some(pool), Some(by)) = (&pool, by) {
        ctx.administered(pool, by, AdminAction::Expected { pool: pool.id(), count, at });
    }
    Ok(pool)
}

/// Opens solves for the tokens that a pool is short of.
pub(crate) fn refill(ctx: &mut DecisionCtx<'_>, request: &RefillRequest) -> Result<Refilled> {
    let nothing = Refilled { is_controller: false, opened: Vec::new() };
    let Some(before) = ctx.tx.get::<Pools>(&request.pool)? else { return Ok(nothing) };
    if !may_control(ctx, &before, request.holder)? {
        return Ok(nothing);
    }
    let mut pool = before.clone();
    pool.controller = Some(request.holder);
    pool.target = request.target;
    let stock = usable(ctx.tx, request.pool, Timestamp::default())?;
    // These have expired, but no sweep has counted them yet.
    let unswept = stock.iter().filter(|until| **until < ctx.now.plus(MIN_LEFT)).count();
    let mut spare = stock.len() - unswept + coming(ctx.tx, request.pool)?;
    let order = &pool.order;
    let is_paused = pauses(ctx.tx)?.stopping(&order.challenge, [&order.worker]).is_some();
    let mut opened = Vec::new();
    for id in &request.solves {
        let short = u64::try_from(spare).unwrap_or(u64::MAX) < u64::from(request.target.level);
        if is_paused || !short || !pool.may_order(spare + unswept) {
            break;
        }
        if ctx.tx.has::<Solves>(id)? {
            continue;
        }
        if budgets::exceeded(ctx, &buyer(request), request.price)?.is_some() {
            break;
        }
        open(ctx, &pool, request, *id)?;
        pool.ordered += 1;
        spare += 1;
        opened.push(*id);
    }
    if pool != before {
        ctx.tx.put::<Pools>(request.pool, pool)?;
    }
    Ok(Refilled { is_controller: true, opened })
}

/// Whether the holder is alive, and no other living holder controls the pool.
fn may_control(ctx: &DecisionCtx<'_>, pool: &Pool, holder: HolderId) -> Result<bool> {
    let other = pool.controller.filter(|other| *other != holder);
    let is_taken = match other {
        Some(other) => ctx.is_alive(other)?,
        None => false,
    };
    Ok(!is_taken && ctx.is_alive(holder)?)
}

fn buyer(request: &RefillRequest) -> Buyer {
    let scope = BudgetScope::Pool(PoolId::of(&request.pool));
    Buyer { scope, own: request.budget, account: request.account }
}

fn open(
    ctx: &mut DecisionCtx<'_>,
    pool: &Pool,
    request: &RefillRequest,
    id: SolveId,
) -> Result<()> {
    let order = &pool.order;
    let mut solve = Solve {
        id,
        origin: Origin::Refill,
        fingerprint: pool.fingerprint,
        kind: order.challenge.kind().clone(),
        worker: order.worker.clone(),
        project: order.project.clone(),
        claims: Vec::new(),
        stage: Stage::Queued,
        fence: domain::lease::Fence::default(),
        holder: None,
        attempt: 0,
        nonce: None,
        task: None,
        opened_at: ctx.now,
        wanted_until: request.wanted_until,
        accepted_at: None,
        due: ctx.now,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        price: request.price,
        // No claim waits for it, so a lost reply is not worth a second payment.
        policy: Policy { ambiguous: AmbiguousPolicy::Never, ambiguity_budget: 0 },
        ended_at: None,
        reservations: Reservations::default(),
    };
    budgets::reserve(ctx, &buyer(request), &mut solve)?;
    let event =
        Event::Ordered { basis: order.basis.as_ref().to_owned(), target: request.target.level };
    ctx.record(&solve, event);
    if let Some(carried) = Event::carried(&order.challenge) {
        ctx.record(&solve, carried);
    }
    ctx.tx.put::<Challenges>(id, Arc::clone(&order.challenge))?;
    indexes::insert_solve(ctx.tx, &solve)
}
