//! The stakes of the gateways in the account's limits, in the rows of their leases. The rule is `domain/src/account_share.rs`;
//! this says who takes part, and what gateways that are gone still occupy.
//!
//! A task at the provider occupies a slot wherever its gateway is. So slots move with tasks: to the gateway that leases them,
//! and to the row that a gateway leaves behind when it releases its tasks.

use std::collections::BTreeMap;

use domain::{
    account_share::{Others, Stake, Standing},
    id::{HolderId, Place},
    lease::Holder,
    ports::LeaseRequest,
    solve::{Solve, Stage},
    time::Timestamp,
};

use crate::{
    Result,
    schema::keys::{all, starting_with},
    schema::tables::{Held, HolderRow, Holders, Solves},
    tx::{Order, TypedRead, TypedWrite, WriteTx},
};

/// The tasks of a gateway that is gone are counted up to here. With more solves left to take over, it counts as if it still
/// occupied everything it had.
const MAX_COUNTED: usize = 1000;

type Row = (HolderId, HolderRow);

/// Computes a holder's standing, and its row.
pub(crate) fn standing(tx: &dyn WriteTx, holder: Holder) -> Result<(HolderRow, Standing)> {
    let began_at = holder.until.minus(LeaseRequest::TERM);
    let rows: Vec<Row> = tx.scan::<Holders>(all(), Order::Rising, usize::MAX)?;
    let others: Vec<&Row> = rows.iter().filter(|(id, _)| *id != holder.id).collect();
    let is_alive = |row: &HolderRow| row.until > began_at;
    let newest = newest_of_places(&holder, others.iter().filter(|(_, row)| is_alive(row)));
    let is_replaced = |id: HolderId| id.place().is_some_and(|place| newest[&place] != id);

    let (mut living, mut gone) = (Vec::new(), 0_u32);
    for (id, row) in others {
        if is_alive(row) && !is_replaced(*id) {
            living.push((*id, row));
        } else {
            gone = gone.saturating_add(occupied(tx, *id, row, began_at)?);
        }
    }
    let gateways = living.len() + 1;
    let Some(uses) = holder.account else {
        return Ok((HolderRow::new(holder.until), Standing::apart(gateways)));
    };
    let others = |stake: fn(&HolderRow) -> Stake, gone| Others {
        stakes: living.iter().map(|(_, row)| stake(row)).collect(),
        before: living.iter().filter(|(id, _)| *id < holder.id).count(),
        gone,
        turn: began_at.millis() / millis(LeaseRequest::TERM),
    };
    let slots = uses.slots.grant(&others(|row| row.slots, gone));
    // A gateway that is gone submits nothing.
    let submits = uses.submits.grant(&others(|row| row.submits, 0));
    let row = HolderRow {
        slots: Stake::after(uses.slots, slots),
        submits: Stake::after(uses.submits, submits),
        used: uses.used,
        ..HolderRow::new(holder.until)
    };
    let others_used = living.iter().fold(gone, |sum, (_, row)| sum.saturating_add(row.used));
    Ok((row, Standing { gateways, slots, submits, others_used }))
}

/// The process of each place that has replaced the others there. The one that renews is the newest of its own.
fn newest_of_places<'a>(
    holder: &Holder,
    living: impl Iterator<Item = &'a &'a Row>,
) -> BTreeMap<Place, HolderId> {
    let mut newest: BTreeMap<Place, (Timestamp, HolderId)> = BTreeMap::new();
    for (id, row) in living {
        let Some(place) = id.place() else { continue };
        let known = newest.entry(place).or_insert((row.until, *id));
        *known = (*known).max((row.until, *id));
    }
    let mut newest: BTreeMap<_, _> =
        newest.into_iter().map(|(place, (_, id))| (place, id)).collect();
    newest.extend(holder.id.place().map(|place| (place, holder.id)));
    newest
}

/// How many slots a gateway that is gone still occupies.
fn occupied(tx: &dyn WriteTx, id: HolderId, row: &HolderRow, now: Timestamp) -> Result<u32> {
    let held = row.slots.held;
    if held == 0 || now < row.left_until {
        return Ok(held);
    }
    let rows = tx.scan::<Held>(starting_with(id), Order::Rising, MAX_COUNTED)?;
    if rows.len() == MAX_COUNTED {
        return Ok(held);
    }
    let mut tasks = 0_u32;
    for ((_, _, solve), ()) in rows {
        let solve = tx.get::<Solves>(&solve)?;
        tasks += u32::from(solve.is_some_and(|solve| may_occupy(&solve)));
    }
    Ok(tasks.min(held))
}

/// Whether the solve has a task at the provider, or may have one.
pub(crate) fn may_occupy(solve: &Solve) -> bool {
    matches!(solve.stage, Stage::Intent | Stage::Submitted | Stage::Overdue)
}

/// The row that a holder leaves behind: none, or one that still has the slots of its tasks, until another holder leases them or
/// its lease would have ended.
pub(crate) fn leave(tx: &mut dyn WriteTx, holder: HolderId, tasks: u32) -> Result<()> {
    let Some(row) = tx.take::<Holders>(&holder)? else { return Ok(()) };
    let held = tasks.min(row.slots.held);
    if held > 0 {
        let slots = Stake { held, ..Stake::default() };
        let left = HolderRow::new(Timestamp::default());
        tx.put::<Holders>(holder, HolderRow { slots, left_until: row.until, ..left })?;
    }
    Ok(())
}

/// A holder has leased tasks of dead holders and tasks that others had released: their slots move with them.
pub(crate) fn adopt(
    tx: &mut dyn WriteTx,
    holder: HolderId,
    from_dead: u32,
    released: u32,
) -> Result<()> {
    let mut moved = from_dead;
    let mut left = released;
    if left > 0 {
        for (id, mut row) in tx.scan::<Holders>(all(), Order::Rising, usize::MAX)? {
            if row.left_until == Timestamp::default() || left == 0 {
                continue;
            }
            let taken = left.min(row.slots.held);
            (row.slots.held, left, moved) = (row.slots.held - taken, left - taken, moved + taken);
            if row.slots.held > 0 {
                tx.put::<Holders>(id, row)?;
            } else {
                tx.take::<Holders>(&id)?;
            }
        }
    }
    let Some(mut row) = tx.get::<Holders>(&holder)?.filter(|_| moved > 0) else { return Ok(()) };
    let held = row.slots.held.saturating_add(moved);
    if held != row.slots.held {
        row.slots.held = held;
        tx.put::<Holders>(holder, row)?;
    }
    Ok(())
}

fn millis(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1)
}
