//! Who moves a solve: holders, their leases, and taking over from the dead. A lease that ends spends nothing: the
//! next holder finds an intent and makes it ambiguous.

use std::ops::RangeInclusive;

use domain::{
    id::{HolderId, SolveId},
    lease::{Holder, Lease},
    ledger::{Counts, Event},
    ports::{LeaseAsk, StoreError},
    retry::{Code, own},
    solve::{Solve, Stage},
    time::Timestamp,
};

use crate::{
    tables::{Challenges, Free, Held, Holders, Solves},
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{bury::bury, keep, missing, place::Effort, step::Step};

/// A solve by when it is due.
type Due = (Timestamp, SolveId);

/// Renews a holder's lease, or takes it.
pub(crate) fn hold(tx: &mut dyn WriteTx, holder: Holder) -> Result<(), StoreError> {
    tx.put::<Holders>(holder.id, holder.until)
}

/// Gives up a holder's lease. Its solves are free at once, except intents: whether their bytes left is not known here,
/// so they keep their holder, and whoever takes them finds it dead.
pub(crate) fn release(tx: &mut dyn WriteTx, holder: HolderId) -> Result<(), StoreError> {
    tx.take::<Holders>(&holder)?;
    let rows = tx.scan::<Held>(held_by(holder, u64::MAX), Order::Rising, usize::MAX)?;
    for ((_, _, id), ()) in rows {
        let before = keep::named_solve(tx, id)?;
        if before.stage != Stage::Intent {
            let after = Solve { holder: None, ..before.clone() };
            keep::solve(tx, &before, &after)?;
        }
    }
    Ok(())
}

/// Whether the holder's lease has not ended.
pub(super) fn is_alive(
    tx: &dyn ReadTx,
    holder: HolderId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    Ok(tx.get::<Holders>(&holder)?.is_some_and(|until| now < until))
}

/// Takes solves that are due and free, or whose holder is dead, oldest first.
pub(crate) fn lease(
    tx: &mut dyn WriteTx,
    ask: LeaseAsk,
    now: Timestamp,
) -> Result<Vec<Lease>, StoreError> {
    if !is_alive(tx, ask.holder, now)? {
        return Ok(Vec::new());
    }
    let found = match ask.only {
        Some(id) => named(tx, id, now)?,
        None => oldest(tx, ask.limit, now)?,
    };
    let mut step = Step::new(tx, now);
    let mut leases = Vec::with_capacity(found.len());
    for (_, id) in found {
        leases.extend(take(&mut step, ask.holder, id)?);
    }
    step.finish()?;
    Ok(leases)
}

/// What can be taken, oldest first.
fn oldest(tx: &dyn ReadTx, limit: usize, now: Timestamp) -> Result<Vec<Due>, StoreError> {
    let free = tx.scan::<Free>(due_until(now), Order::Rising, limit)?;
    let mut found: Vec<Due> = free.into_iter().map(|(key, ())| key).collect();
    for dead in dead_holders(tx, now)? {
        found.extend(left_behind(tx, dead, limit, now)?);
    }
    found.sort_unstable();
    found.truncate(limit);
    Ok(found)
}

/// That one, if it is among what can be taken. Its row says so as well as the indexes do, and is all that is read.
fn named(tx: &dyn ReadTx, id: SolveId, now: Timestamp) -> Result<Vec<Due>, StoreError> {
    let Some(solve) = tx.get::<Solves>(&id)?.filter(|solve| !solve.stage.is_final()) else {
        return Ok(Vec::new());
    };
    let can_go_on = match solve.holder {
        None => solve.due <= now,
        Some(holder) if is_alive(tx, holder, now)? => false,
        Some(_) => solve.due <= now || has_task(&solve),
    };
    Ok(if can_go_on { vec![(solve.due, id)] } else { Vec::new() })
}

fn take(step: &mut Step<'_>, holder: HolderId, id: SolveId) -> Result<Option<Lease>, StoreError> {
    let before = keep::named_solve(step.tx, id)?;
    let mut solve = before.clone();
    for event in solve.take(holder, step.now) {
        // A poisoned solve ends on an attempt that may have been paid.
        let cost_unknown = u64::from(matches!(event, Event::Failed { .. }));
        step.tell_with(&solve, event, Counts { cost_unknown, ..Counts::default() });
    }
    if solve.stage == Stage::Failed {
        let claims = std::mem::take(&mut solve.claims);
        keep::solve(step.tx, &before, &solve)?;
        bury(step, &solve, &claims, &Code::from(own::POISON), &Effort::so_far(&solve))?;
        return Ok(None);
    }
    solve.due = solve.due.min(step.now);
    keep::solve(step.tx, &before, &solve)?;
    let challenge = step
        .tx
        .get::<Challenges>(&id)?
        .ok_or_else(|| missing(step.tx, "challenges", format!("the challenge of {id} is gone")))?;
    Ok(Some(Lease { holder, fence: solve.fence, solve, challenge }))
}

/// Holders that have solves and no lease.
fn dead_holders(tx: &dyn ReadTx, now: Timestamp) -> Result<Vec<HolderId>, StoreError> {
    let mut dead = Vec::new();
    let mut from = Some(0);
    while let Some(number) = from {
        let start = (HolderId::from_number(number), Timestamp::default(), SolveId::from_number(0));
        let end = *held_by(HolderId::from_number(u64::MAX), u64::MAX).end();
        let rows = tx.scan::<Held>(start..=end, Order::Rising, 1)?;
        let Some(((holder, _, _), ())) = rows.first() else { break };
        if !is_alive(tx, *holder, now)? {
            dead.push(*holder);
        }
        from = holder.number().checked_add(1);
    }
    Ok(dead)
}

/// A dead holder's solves that can go on: what is due, and what has a task. How long its next poll can wait was only in
/// the dead holder's memory.
fn left_behind(
    tx: &dyn ReadTx,
    dead: HolderId,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Due>, StoreError> {
    let due = tx.scan::<Held>(held_by(dead, now.millis()), Order::Rising, limit)?;
    let mut found: Vec<Due> = due.into_iter().map(|((_, due, id), ())| (due, id)).collect();
    if found.len() == limit || now.millis() == u64::MAX {
        return Ok(found);
    }
    let later = (dead, Timestamp::from_millis(now.millis() + 1), SolveId::from_number(0));
    let range = later..=*held_by(dead, u64::MAX).end();
    for ((_, due, id), ()) in tx.scan::<Held>(range, Order::Rising, usize::MAX)? {
        let solve = tx.get::<Solves>(&id)?;
        if solve.is_some_and(|solve| has_task(&solve)) {
            found.push((due, id));
        }
    }
    Ok(found)
}

fn has_task(solve: &Solve) -> bool {
    matches!(solve.stage, Stage::Submitted | Stage::Overdue)
}

fn held_by(holder: HolderId, until: u64) -> RangeInclusive<(HolderId, Timestamp, SolveId)> {
    let least = (holder, Timestamp::default(), SolveId::from_number(0));
    least..=(holder, Timestamp::from_millis(until), SolveId::from_number(u64::MAX))
}

fn due_until(now: Timestamp) -> RangeInclusive<Due> {
    (Timestamp::default(), SolveId::from_number(0))..=(now, SolveId::from_number(u64::MAX))
}
