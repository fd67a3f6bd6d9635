//! Standing orders. One holder at a time is a pool's controller; what it orders is written before it is sent, and only
//! as much as the pool's waste allowance covers. Arrivals, hits and waste are counted in the steps they happen in.

use std::sync::Arc;

use domain::{
    fingerprint::Fingerprint,
    id::SolveId,
    ledger::Event,
    money::Money,
    pool::{Expectation, Pool, StandingOrder},
    ports::{Refill, Refilled, StoreError},
    solve::{AmbiguousPolicy, Origin, Policy, Solve, Stage},
    time::Timestamp,
    token::MIN_LEFT,
};

use crate::{
    tables::{Challenges, Pools, Solves, Spare, Stock},
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{keep, lease::is_alive, step::Step};

/// Opens or changes a standing order, or ends it. What it has learned stays with it.
pub(crate) fn set_pool(
    tx: &mut dyn WriteTx,
    fingerprint: Fingerprint,
    order: Option<StandingOrder>,
    now: Timestamp,
) -> Result<Option<Pool>, StoreError> {
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

/// Announces demand.
pub(crate) fn expect(
    tx: &mut dyn WriteTx,
    fingerprint: Fingerprint,
    expectation: Expectation,
    now: Timestamp,
) -> Result<Option<Pool>, StoreError> {
    change(tx, fingerprint, |pool| pool.expect(expectation.left, expectation.at, now))?;
    tx.get::<Pools>(&fingerprint)
}

/// Orders what a pool is short of.
pub(crate) fn refill(
    tx: &mut dyn WriteTx,
    ask: &Refill,
    now: Timestamp,
) -> Result<Refilled, StoreError> {
    let nothing = Refilled { is_controller: false, opened: Vec::new() };
    let Some(before) = tx.get::<Pools>(&ask.pool)? else { return Ok(nothing) };
    let other = before.controller.filter(|holder| *holder != ask.holder);
    if !is_alive(tx, ask.holder, now)? {
        return Ok(nothing);
    }
    if let Some(other) = other
        && is_alive(tx, other, now)?
    {
        return Ok(nothing);
    }
    let mut pool = before.clone();
    pool.controller = Some(ask.holder);
    pool.target = ask.target;
    let stock = usable(tx, ask.pool, Timestamp::default())?;
    // They have died and are not counted yet.
    let unswept = stock.iter().filter(|until| **until < now.plus(MIN_LEFT)).count();
    let mut spare = stock.len() - unswept + coming(tx, ask.pool)?;
    let mut step = Step::new(tx, now);
    let mut opened = Vec::new();
    for id in &ask.solves {
        let short = u64::try_from(spare).unwrap_or(u64::MAX) < u64::from(ask.target.level);
        if !short || !pool.may_order(spare + unswept) {
            break;
        }
        if step.tx.has::<Solves>(id)? {
            continue;
        }
        open(&mut step, &pool, ask, *id)?;
        pool.ordered += 1;
        spare += 1;
        opened.push(*id);
    }
    if pool != before {
        step.tx.put::<Pools>(ask.pool, pool)?;
    }
    step.finish()?;
    Ok(Refilled { is_controller: true, opened })
}

fn open(step: &mut Step<'_>, pool: &Pool, ask: &Refill, id: SolveId) -> Result<(), StoreError> {
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
        opened_at: step.now,
        wanted_until: ask.wanted_until,
        accepted_at: None,
        due: step.now,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        price: ask.price,
        // Nobody waits: a lost reply is not worth a second payment.
        policy: Policy { ambiguous: AmbiguousPolicy::Never, ambiguity_budget: 0 },
        ended_at: None,
    };
    let event = Event::Ordered { basis: order.basis.as_ref().to_owned(), target: ask.target.level };
    step.tell(&solve, event);
    step.tx.put::<Challenges>(id, Arc::clone(&order.challenge))?;
    keep::new_solve(step.tx, &solve)
}

// === what a pool has ===

/// Until when each of its usable tokens is handed out, soonest first.
pub(crate) fn usable(
    tx: &dyn ReadTx,
    fingerprint: Fingerprint,
    now: Timestamp,
) -> Result<Vec<Timestamp>, StoreError> {
    let edge = |at, n| (fingerprint, at, SolveId::from_number(n));
    let range = edge(now.plus(MIN_LEFT), 0)..=edge(Timestamp::from_millis(u64::MAX), u64::MAX);
    let rows = tx.scan::<Stock>(range, Order::Rising, usize::MAX)?;
    Ok(rows.into_iter().map(|((_, until, _), _)| until).collect())
}

/// Solves under way that nobody waits for.
pub(crate) fn coming(tx: &dyn ReadTx, fingerprint: Fingerprint) -> Result<usize, StoreError> {
    let edge = |n| (fingerprint, SolveId::from_number(n));
    Ok(tx.scan::<Spare>(edge(0)..=edge(u64::MAX), Order::Rising, usize::MAX)?.len())
}

// === what happens to it ===

/// A claim came in for its challenge; `hit`: it found a token.
pub(super) fn arrived(
    step: &mut Step<'_>,
    fingerprint: Fingerprint,
    hit: bool,
) -> Result<(), StoreError> {
    let now = step.now;
    change(step.tx, fingerprint, |pool| {
        pool.arrive(hit, now);
        pool.served += u64::from(hit);
    })
}

/// A waiting claim for its challenge was served.
pub(super) fn served(step: &mut Step<'_>, fingerprint: Fingerprint) -> Result<(), StoreError> {
    change(step.tx, fingerprint, |pool| pool.served += 1)
}

/// One of its tokens died with nobody to have it.
pub(super) fn wasted(step: &mut Step<'_>, fingerprint: Fingerprint) -> Result<(), StoreError> {
    change(step.tx, fingerprint, |pool| pool.wasted += 1)
}

/// A token for its challenge came, at this price.
pub(super) fn paid(
    step: &mut Step<'_>,
    fingerprint: Fingerprint,
    cost: Option<Money>,
) -> Result<(), StoreError> {
    change(step.tx, fingerprint, |pool| match cost {
        Some(cost) => pool.cost = pool.cost + cost,
        None => pool.cost_unknown += 1,
    })
}

/// Most challenges have no pool.
fn change(
    tx: &mut dyn WriteTx,
    fingerprint: Fingerprint,
    change: impl FnOnce(&mut Pool),
) -> Result<(), StoreError> {
    let Some(mut pool) = tx.get::<Pools>(&fingerprint)? else { return Ok(()) };
    change(&mut pool);
    tx.put::<Pools>(fingerprint, pool)
}
