//! What time does: claims lapse, tokens nobody fetched serve others, tokens in stock die, old records are dropped.

use std::time::Duration;

use domain::{
    challenge::Sharing,
    claim::{Claim, ClaimState},
    fingerprint::Fingerprint,
    id::{ClaimId, SolveId},
    ports::{StoreError, SweepAsk, Swept},
    retry::{Code, own},
    solve::Stage,
    time::Timestamp,
    token::MIN_LEFT,
};

use crate::{
    tables::{Expiries, Stock, Watched},
    tx::{Order, TypedRead, TypedWrite, WriteTx},
};

use super::{
    bury, deliver,
    garbage::{self, Kept},
    keep,
    place::{self, Effort},
    pools,
    step::Step,
    withdraw::{give_back, unfetched},
};

/// Sweeps as asked.
pub(crate) fn sweep(
    tx: &mut dyn WriteTx,
    ask: &SweepAsk,
    now: Timestamp,
) -> Result<Swept, StoreError> {
    let limit = ask.limit;
    let mut step = Step::new(tx, now);
    let mut swept = Swept::default();
    lapse_watched(&mut step, ask, &mut swept)?;
    swept.wasted += clear_stock(&mut step, limit)?;
    let kept = Kept::of(step.tx, &ask.history)?;
    swept.dropped = garbage::drop_old(step.tx, kept, limit, now)?;
    step.finish()?;
    Ok(swept)
}

fn lapse_watched(step: &mut Step<'_>, ask: &SweepAsk, swept: &mut Swept) -> Result<(), StoreError> {
    let least = (Timestamp::default(), ClaimId::from_number(0));
    let most = (step.now, ClaimId::from_number(u64::MAX));
    let rows = step.tx.scan::<Watched>(least..=most, Order::Rising, ask.limit)?;
    let mut served = Vec::new();
    for ((_, id), ()) in rows {
        let claim = keep::named_claim(step.tx, id)?;
        if claim.state == ClaimState::Waiting {
            lapse_waiting(step, &claim, ask.trouble.as_ref())?;
            swept.lapsed.push(id);
        } else {
            served.push(claim);
        }
    }
    // Last, so that no token is passed on to a claim that lapses in the same sweep.
    for claim in served {
        lapse_unfetched(step, &claim, swept)?;
    }
    Ok(())
}

fn lapse_waiting(
    step: &mut Step<'_>,
    before: &Claim,
    trouble: Option<&Code>,
) -> Result<(), StoreError> {
    let deadline = Code::from(own::DEADLINE);
    let Some(id) = before.solve else {
        bury::end(step, before, ClaimState::Lapsed, Some(deadline), &Effort::NONE)?;
        return Ok(());
    };
    let solve = keep::named_solve(step.tx, id)?;
    // Only what could not even be sent lapses because of the account.
    let trouble = trouble.filter(|_| solve.stage == Stage::Queued);
    let code = trouble.cloned().unwrap_or(deadline);
    bury::end(step, before, ClaimState::Lapsed, Some(code.clone()), &Effort::so_far(&solve))?;
    if trouble.is_some() {
        bury::put_back(step, before, &code)?;
    }
    match place::leave(step, before.id, id, code.as_str())? {
        Some(solve) if solve.stage != Stage::Ready && trouble.is_none() => {
            bury::write_letter(step, &solve, before.id, &[before.id], &code)
        }
        Some(_) | None => Ok(()),
    }
}

fn lapse_unfetched(
    step: &mut Step<'_>,
    claim: &Claim,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    if let Some(token) = unfetched(claim, step.now) {
        let code = Some(Code::from(own::DEADLINE));
        give_back(step, claim, token, ClaimState::Lapsed, code)?;
        swept.lapsed.push(claim.id);
        swept.banked += 1;
    } else if let Some(token) = &claim.token
        && deliver::expire(step, claim, token)?
    {
        swept.wasted += 1;
    }
    Ok(())
}

/// Removes tokens that died in stock. A shared answer has served its purpose; an exclusive one is wasted.
fn clear_stock(step: &mut Step<'_>, limit: usize) -> Result<usize, StoreError> {
    let dead = step.now.plus(MIN_LEFT).minus(Duration::from_millis(1));
    let edge = |at, byte, n| (at, Fingerprint::from_bytes([byte; 32]), SolveId::from_number(n));
    let range = edge(Timestamp::default(), 0, 0)..=edge(dead, u8::MAX, u64::MAX);
    let mut wasted = 0;
    for (key, ()) in step.tx.scan::<Expiries>(range, Order::Rising, limit)? {
        let (usable_until, fingerprint, solve) = key;
        step.tx.take::<Expiries>(&key)?;
        let stocked = step.tx.take::<Stock>(&(fingerprint, usable_until, solve))?;
        if let Some(stocked) = stocked
            && stocked.kind.sharing() == Sharing::Exclusive
        {
            place::waste(step, &stocked, &stocked.token);
            pools::wasted(step, fingerprint)?;
            wasted += 1;
        }
    }
    Ok(wasted)
}
