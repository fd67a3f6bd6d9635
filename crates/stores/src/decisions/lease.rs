//! Leases solves to holders, and takes solves over from holders whose lease expired. An expired lease spends nothing: the
//! next holder finds an intent and makes it ambiguous.

use domain::{
    account_share::Standing,
    id::{HolderId, SolveId},
    lease::{Holder, Lease},
    ledger::{Counts, Event},
    ports::LeaseRequest,
    retry::{Code, own},
    solve::{Solve, Stage, TAKEOVER_GRACE},
    time::Timestamp,
};

use crate::{
    Result,
    schema::keys::{CompoundKey, Key, all, up_to},
    schema::tables::{Free, Held, Holders, Solves, Table},
    tx::{Order, TypedRead, TypedWrite, WriteTx},
};

use super::support::{
    budgets, context::DecisionCtx, effort::Effort, fail::fail_solve, indexes, stakes,
};

/// When a solve is due, and its id.
pub(crate) type Due = (Timestamp, SolveId);

/// Solves of a holder in one decision. A gateway may leave a hundred thousand, which no server reads within a second.
const PAGE: usize = 1000;

/// Takes or renews a lease. Returns how many gateways have a lease at its beginning, and the holder's shares of the account's
/// limits. Processes of one place count once: the later one has replaced the others, whose leases end by themselves.
pub(crate) fn hold(tx: &mut dyn WriteTx, holder: Holder) -> Result<Standing> {
    let (row, standing) = stakes::standing(tx, holder)?;
    tx.put::<Holders>(holder.id, row)?;
    Ok(standing)
}

/// Gives up a holder's lease. Its solves are free at once, except intents. Whether the bytes of an intent left is not known
/// here, so it keeps its holder, and the next holder takes it over as from a dead one.
///
/// One call frees up to [`PAGE`] solves, from `from` on. Returns where the next call goes on. Between them, the rest can be
/// taken over.
pub(crate) fn release(
    tx: &mut dyn WriteTx,
    holder: HolderId,
    from: Option<Due>,
) -> Result<Option<Due>> {
    let (due, id) = from.unwrap_or((Timestamp::default(), SolveId::least()));
    let rest = (holder, due, id)..=CompoundKey::most_of(holder);
    let rows = tx.scan::<Held>(rest, Order::Rising, PAGE)?;
    let last = rows.last().filter(|_| rows.len() == PAGE).map(|((_, due, id), ())| (*due, *id));
    let mut tasks = 0;
    for ((_, _, id), ()) in rows {
        let before = indexes::existing_solve(tx, id)?;
        tasks += u32::from(stakes::may_occupy(&before));
        if before.stage != Stage::Intent {
            let after = Solve { holder: None, ..before.clone() };
            indexes::update_solve(tx, &before, &after)?;
        }
    }
    if from.is_none() {
        // With more solves to come, their tasks may occupy everything that the holder had.
        stakes::leave(tx, holder, if last.is_some() { u32::MAX } else { tasks })?;
    }
    Ok(last)
}

/// Leases solves that are due and free, or whose holder is dead, oldest first.
pub(crate) fn lease(ctx: &mut DecisionCtx<'_>, request: LeaseRequest) -> Result<Vec<Lease>> {
    if !ctx.is_alive(request.holder)? {
        return Ok(Vec::new());
    }
    let found = match request.only {
        Some(id) => if_available(ctx, id)?,
        None => available(ctx, request.limit)?,
    };
    let mut leases = Vec::with_capacity(found.len());
    let (mut from_dead, mut released) = (0, 0);
    for (_, id) in found {
        let before = indexes::existing_solve(ctx.tx, id)?;
        if has_task(&before) {
            *(if before.holder.is_some() { &mut from_dead } else { &mut released }) += 1;
        }
        leases.extend(take(ctx, request.holder, &before)?);
    }
    stakes::adopt(ctx.tx, request.holder, from_dead, released)?;
    Ok(leases)
}

/// The solves that can be leased, oldest first.
fn available(ctx: &DecisionCtx<'_>, limit: usize) -> Result<Vec<Due>> {
    let free = ctx.tx.scan::<Free>(up_to(ctx.now), Order::Rising, limit)?;
    let mut found: Vec<Due> = free.into_iter().map(|(key, ())| key).collect();
    for dead in dead_holders(ctx)? {
        found.extend(available_of(ctx, dead, limit)?);
    }
    found.sort_unstable();
    found.truncate(limit);
    Ok(found)
}

/// The given solve, if it can be leased. Its row says so as well as the indexes do, so nothing else is read.
fn if_available(ctx: &DecisionCtx<'_>, id: SolveId) -> Result<Vec<Due>> {
    let Some(solve) = ctx.tx.get::<Solves>(&id)?.filter(|solve| !solve.stage.is_final()) else {
        return Ok(Vec::new());
    };
    let is_available = match solve.holder {
        None => solve.due <= ctx.now,
        Some(holder) if ctx.is_alive(holder)? => false,
        Some(_) => solve.due <= ctx.now || has_task(&solve),
    };
    Ok(if is_available { vec![(solve.due, id)] } else { Vec::new() })
}

fn take(ctx: &mut DecisionCtx<'_>, holder: HolderId, before: &Solve) -> Result<Option<Lease>> {
    let id = before.id;
    let mut solve = before.clone();
    let events = solve.take(holder, end_of_grace(ctx, before.holder)?, ctx.now);
    budgets::follow(ctx, &mut solve, &events)?;
    for event in events {
        // A poisoned solve fails after an attempt that may have been charged.
        let cost_unknown = u64::from(matches!(event, Event::Failed { .. }));
        ctx.record_with(&solve, event, &Counts { cost_unknown, ..Counts::default() });
    }
    if solve.stage == Stage::Failed {
        let claims = std::mem::take(&mut solve.claims);
        indexes::update_solve(ctx.tx, before, &solve)?;
        let (code, effort) = (Code::from(own::POISON), Effort::without_answer(&solve));
        fail_solve(ctx, &solve, &claims, &code, &effort)?;
        return Ok(None);
    }
    if solve.stage != Stage::Ambiguous {
        solve.due = solve.due.min(ctx.now);
    }
    indexes::update_solve(ctx.tx, before, &solve)?;
    let challenge = indexes::existing_challenge(ctx.tx, id)?;
    Ok(Some(Lease::new(holder, solve, challenge)))
}

/// When something may be decided about what the dead holder `from` has sent. Counts from the end of its lease, as far as the
/// store knows it: the embedded store knows that all holders of before its start are dead.
fn end_of_grace(ctx: &DecisionCtx<'_>, from: Option<HolderId>) -> Result<Timestamp> {
    let row = from.map(|from| ctx.tx.get::<Holders>(&from)).transpose()?.flatten();
    // A holder that gave up its lease may still have bytes on their way.
    let row = row.filter(|row| row.left_until == Timestamp::default());
    Ok(row.map_or(ctx.now, |row| row.until).plus(TAKEOVER_GRACE).max(ctx.now))
}

/// The holders that have solves and whose lease expired, or that have no row. Only the numbers between those of living holders
/// are searched, because what a living holder has changes with its every step.
fn dead_holders(ctx: &DecisionCtx<'_>) -> Result<Vec<HolderId>> {
    let holders = ctx.tx.scan::<Holders>(all(), Order::Rising, usize::MAX)?;
    let living = holders.into_iter().filter(|(_, row)| ctx.now < row.until);
    let mut dead = Vec::new();
    let mut from = Some(0);
    for (holder, _) in living {
        if let Some(last) = holder.number().checked_sub(1) {
            let last = CompoundKey::most_of(HolderId::from_number(last));
            dead.extend(holders_between(ctx, from, last)?);
        }
        from = holder.number().checked_add(1);
    }
    dead.extend(holders_between(ctx, from, Key::most())?);
    Ok(dead)
}

/// The holders with solves from a number on, up to the last row.
fn holders_between(
    ctx: &DecisionCtx<'_>,
    mut from: Option<u64>,
    last: <Held as Table>::Key,
) -> Result<Vec<HolderId>> {
    let mut found = Vec::new();
    while let Some(number) = from {
        let start = CompoundKey::least_of(HolderId::from_number(number));
        let rows = ctx.tx.scan::<Held>(start..=last, Order::Rising, 1)?;
        let Some(((holder, _, _), ())) = rows.first() else { break };
        found.push(*holder);
        from = holder.number().checked_add(1);
    }
    Ok(found)
}

/// The solves of a dead holder that can be leased: those that are due, and those with a task, because only the dead holder
/// knew when their next poll is due.
fn available_of(ctx: &DecisionCtx<'_>, dead: HolderId, limit: usize) -> Result<Vec<Due>> {
    let due = CompoundKey::least_of(dead)..=(dead, ctx.now, SolveId::most());
    let due = ctx.tx.scan::<Held>(due, Order::Rising, limit)?;
    let mut found: Vec<Due> = due.into_iter().map(|((_, due, id), ())| (due, id)).collect();
    if found.len() == limit || ctx.now.millis() == u64::MAX {
        return Ok(found);
    }
    let later = (dead, Timestamp::from_millis(ctx.now.millis() + 1), SolveId::least());
    let later = later..=CompoundKey::most_of(dead);
    // Those that are leased leave the range, so the next call sees others. The rest is found when it is due.
    for ((_, due, id), ()) in ctx.tx.scan::<Held>(later, Order::Rising, PAGE)? {
        if found.len() == limit {
            break;
        }
        let solve = ctx.tx.get::<Solves>(&id)?;
        if solve.is_some_and(|solve| has_task(&solve)) {
            found.push((due, id));
        }
    }
    Ok(found)
}

fn has_task(solve: &Solve) -> bool {
    matches!(solve.stage, Stage::Submitted | Stage::Overdue)
}

#[cfg(test)]
mod tests;
