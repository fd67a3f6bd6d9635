//! Pools and their refills. One holder at a time controls a pool. It opens the solves that the pool is short of, as far as
//! the pool's waste allowance permits.

use std::sync::Arc;

use domain::{
    fingerprint::Fingerprint,
    id::{HolderId, SolveId},
    ledger::Event,
    pool::{Expectation, Pool, StandingOrder},
    ports::{RefillRequest, Refilled},
    solve::{AmbiguousPolicy, Origin, Policy, Solve, Stage},
    time::Timestamp,
    token::MIN_LEFT,
};

use crate::{
    Result,
    schema::tables::{Challenges, Pools, Solves},
    tx::{TypedRead, TypedWrite, WriteTx},
};

use super::support::{
    context::DecisionCtx,
    indexes,
    pools::{coming, update, usable},
};

/// Sets the standing order of a pool, or removes the pool. A changed order keeps what the pool has learned.
pub(crate) fn set_pool(
    tx: &mut dyn WriteTx,
    fingerprint: Fingerprint,
    order: Option<StandingOrder>,
    now: Timestamp,
) -> Result<Option<Pool>> {
    let Some(order) = order else { return tx.take::<Pools>(&fingerprint) };
    let before = tx.get::<Pools>(&fingerprint)?;
    let pool = match before {
        Some(pool) if pool.order == order => return Ok(Some(pool)),
        Some(pool) => Pool { order, ..pool },
        None => Pool::new(fingerprint, order, now),
    };
    tx.put::<Pools>(fingerprint, pool.clone())?;
    Ok(Some(pool))
}

/// Announces demand that the pool should expect.
pub(crate) fn expect(
    tx: &mut dyn WriteTx,
    fingerprint: Fingerprint,
    expectation: Expectation,
    now: Timestamp,
) -> Result<Option<Pool>> {
    update(tx, fingerprint, |pool| pool.expect(expectation.left, expectation.at, now))?;
    tx.get::<Pools>(&fingerprint)
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
    let mut opened = Vec::new();
    for id in &request.solves {
        let short = u64::try_from(spare).unwrap_or(u64::MAX) < u64::from(request.target.level);
        if !short || !pool.may_order(spare + unswept) {
            break;
        }
        if ctx.tx.has::<Solves>(id)? {
            continue;
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

fn open(
    ctx: &mut DecisionCtx<'_>,
    pool: &Pool,
    request: &RefillRequest,
    id: SolveId,
) -> Result<()> {
    let order = &pool.order;
    let solve = Solve {
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
    };
    let event =
        Event::Ordered { basis: order.basis.as_ref().to_owned(), target: request.target.level };
    ctx.record(&solve, event);
    ctx.tx.put::<Challenges>(id, Arc::clone(&order.challenge))?;
    indexes::insert_solve(ctx.tx, &solve)
}
