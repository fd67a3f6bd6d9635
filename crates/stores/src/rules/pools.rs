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
    shelf::{Order, Shelf, ShelfMut},
    tables::{Challenges, Pools, Solves, Spare, Stock},
};

use super::{keep, lease::is_alive, step::Step};

/// Opens or changes a standing order, or ends it. What it has learned stays with it.
pub(crate) fn set_pool<S: ShelfMut>(
    shelf: &mut S,
    fingerprint: Fingerprint,
    order: Option<StandingOrder>,
    now: Timestamp,
) -> Result<Option<Pool>, StoreError> {
    let Some(order) = order else { return shelf.take::<Pools>(&fingerprint) };
    let before = shelf.get::<Pools>(&fingerprint)?;
    let pool = match before {
        Some(pool) if pool.order == order => return Ok(Some(pool)),
        Some(pool) => Pool { order, ..pool },
        None => Pool::new(fingerprint, order, now),
    };
    shelf.put::<Pools>(fingerprint, pool.clone())?;
    Ok(Some(pool))
}

/// Announces demand.
pub(crate) fn expect<S: ShelfMut>(
    shelf: &mut S,
    fingerprint: Fingerprint,
    expectation: Expectation,
    now: Timestamp,
) -> Result<Option<Pool>, StoreError> {
    change(shelf, fingerprint, |pool| pool.expect(expectation.left, expectation.at, now))?;
    shelf.get::<Pools>(&fingerprint)
}

/// Orders what a pool is short of.
pub(crate) fn refill<S: ShelfMut>(
    shelf: &mut S,
    ask: &Refill,
    now: Timestamp,
) -> Result<Refilled, StoreError> {
    let nothing = Refilled { is_controller: false, opened: Vec::new() };
    let Some(before) = shelf.get::<Pools>(&ask.pool)? else { return Ok(nothing) };
    let other = before.controller.filter(|holder| *holder != ask.holder);
    if !is_alive(shelf, ask.holder, now)? {
        return Ok(nothing);
    }
    if let Some(other) = other
        && is_alive(shelf, other, now)?
    {
        return Ok(nothing);
    }
    let mut pool = before.clone();
    pool.controller = Some(ask.holder);
    pool.target = ask.target;
    let stock = usable(shelf, ask.pool, Timestamp::default())?;
    // They have died and are not counted yet.
    let unswept = stock.iter().filter(|until| **until < now.plus(MIN_LEFT)).count();
    let mut spare = stock.len() - unswept + coming(shelf, ask.pool)?;
    let mut step = Step::new(shelf, now);
    let mut opened = Vec::new();
    for id in &ask.solves {
        let short = u64::try_from(spare).unwrap_or(u64::MAX) < u64::from(ask.target.level);
        if !short || !pool.may_order(spare + unswept) {
            break;
        }
        if step.shelf.has::<Solves>(id)? {
            continue;
        }
        open(&mut step, &pool, ask, *id)?;
        pool.ordered += 1;
        spare += 1;
        opened.push(*id);
    }
    if pool != before {
        step.shelf.put::<Pools>(ask.pool, pool)?;
    }
    step.finish()?;
    Ok(Refilled { is_controller: true, opened })
}

fn open<S: ShelfMut>(
    step: &mut Step<'_, S>,
    pool: &Pool,
    ask: &Refill,
    id: SolveId,
) -> Result<(), StoreError> {
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
    step.shelf.put::<Challenges>(id, Arc::clone(&order.challenge))?;
    keep::new_solve(step.shelf, &solve)
}

// === what a pool has ===

/// Until when each of its usable tokens is handed out, soonest first.
pub(crate) fn usable<S: Shelf>(
    shelf: &S,
    fingerprint: Fingerprint,
    now: Timestamp,
) -> Result<Vec<Timestamp>, StoreError> {
    let edge = |at, n| (fingerprint, at, SolveId::from_number(n));
    let range = edge(now.plus(MIN_LEFT), 0)..=edge(Timestamp::from_millis(u64::MAX), u64::MAX);
    let rows = shelf.scan::<Stock>(range, Order::Rising, usize::MAX)?;
    Ok(rows.into_iter().map(|((_, until, _), _)| until).collect())
}

/// Solves under way that nobody waits for.
pub(crate) fn coming<S: Shelf>(shelf: &S, fingerprint: Fingerprint) -> Result<usize, StoreError> {
    let edge = |n| (fingerprint, SolveId::from_number(n));
    Ok(shelf.scan::<Spare>(edge(0)..=edge(u64::MAX), Order::Rising, usize::MAX)?.len())
}

// === what happens to it ===

/// A claim came in for its challenge; `hit`: it found a token.
pub(super) fn arrived<S: ShelfMut>(
    step: &mut Step<'_, S>,
    fingerprint: Fingerprint,
    hit: bool,
) -> Result<(), StoreError> {
    let now = step.now;
    change(step.shelf, fingerprint, |pool| {
        pool.arrive(hit, now);
        pool.served += u64::from(hit);
    })
}

/// A waiting claim for its challenge was served.
pub(super) fn served<S: ShelfMut>(
    step: &mut Step<'_, S>,
    fingerprint: Fingerprint,
) -> Result<(), StoreError> {
    change(step.shelf, fingerprint, |pool| pool.served += 1)
}

/// One of its tokens died with nobody to have it.
pub(super) fn wasted<S: ShelfMut>(
    step: &mut Step<'_, S>,
    fingerprint: Fingerprint,
) -> Result<(), StoreError> {
    change(step.shelf, fingerprint, |pool| pool.wasted += 1)
}

/// A token for its challenge came, at this price.
pub(super) fn paid<S: ShelfMut>(
    step: &mut Step<'_, S>,
    fingerprint: Fingerprint,
    cost: Option<Money>,
) -> Result<(), StoreError> {
    change(step.shelf, fingerprint, |pool| match cost {
        Some(cost) => pool.cost = pool.cost + cost,
        None => pool.cost_unknown += 1,
    })
}

/// Most challenges have no pool.
fn change<S: ShelfMut>(
    shelf: &mut S,
    fingerprint: Fingerprint,
    change: impl FnOnce(&mut Pool),
) -> Result<(), StoreError> {
    let Some(mut pool) = shelf.get::<Pools>(&fingerprint)? else { return Ok(()) };
    change(&mut pool);
    shelf.put::<Pools>(fingerprint, pool)
}
