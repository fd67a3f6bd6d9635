//! Settles an attempt with a fact that the provider reported. Facts are not fenced: any holder may settle one, and repeating
//! it changes nothing.

use domain::{
    budget::Reservations,
    challenge::Sharing,
    id::{ClaimId, SolveId, TaskId},
    ledger::{Counts, Entry, Event, SolveTimes},
    ports::Settled,
    retry::{Code, Verdict, own},
    solve::{Fact, FactEffect, Origin, Solve, Solved, Stage},
    time::Timestamp,
    token::Token,
};

use crate::{
    Result,
    schema::keys::Text,
    schema::tables::{Challenges, Solves, Subject, Tasks},
    tx::{TypedRead, TypedWrite},
};

use super::support::{
    allocate, budgets, context::DecisionCtx, dead_letters, delivery, effort::Effort,
    fail::fail_solve, indexes, ledger::has_entry, margin, pools,
};

pub(crate) fn settle(
    ctx: &mut DecisionCtx<'_>,
    id: SolveId,
    attempt: u32,
    fact: &Fact,
) -> Result<Settled> {
    let before = indexes::existing_solve(ctx.tx, id)?;
    let mut solve = before.clone();
    let mut orphan = None;
    let fresh = match learn(ctx, &mut solve, attempt, fact)? {
        FactEffect::Known => record_unwritten_price(ctx, &mut solve, attempt, fact)?,
        FactEffect::Moved(events) => {
            apply(ctx, &before, &mut solve, (attempt, fact), events)?;
            true
        }
        FactEffect::Orphaned { task, sent_at } => {
            orphan = adopt(ctx, &mut solve, attempt, (task, sent_at))?;
            orphan.is_some()
        }
    };
    Ok(Settled { solve, fresh, ended: std::mem::take(&mut ctx.ended), orphan })
}

// === learning ===

fn learn(
    ctx: &DecisionCtx<'_>,
    solve: &mut Solve,
    attempt: u32,
    fact: &Fact,
) -> Result<FactEffect> {
    // A fact about an attempt that was never made is ignored.
    if attempt == 0 || attempt > solve.attempt {
        return Ok(FactEffect::Known);
    }
    let owner = match fact {
        Fact::Accepted { task, .. } => ctx.tx.get::<Tasks>(&Text::new(task.as_str()))?,
        Fact::NotAccepted { .. }
        | Fact::Withheld { .. }
        | Fact::ReplyLost { .. }
        | Fact::TaskOver { .. }
        | Fact::Solved(_) => None,
    };
    Ok(match owner {
        None => solve.apply_fact(attempt, fact, ctx.now),
        Some((id, of)) if (id, of) == (solve.id, attempt) || id == solve.id.orphan(attempt) => {
            FactEffect::Known
        }
        Some(_) => quarantine(solve, attempt, ctx.now),
    })
}

/// Fails a solve whose provider returned the task of another solve. Two solves never share a task. Whether the provider
/// charged for this attempt is unknown.
fn quarantine(solve: &mut Solve, attempt: u32, now: Timestamp) -> FactEffect {
    let code = Code::from(own::DUPLICATE_TASK);
    let refused = Fact::NotAccepted { code, verdict: Verdict::GiveUp };
    let learned = solve.apply_fact(attempt, &refused, now);
    if let (FactEffect::Moved(_), Some(failure)) = (&learned, solve.failures.last_mut()) {
        failure.cost = None;
    }
    learned
}

/// Records the price of an answer that the solve has and the ledger does not. This happens after a store lost writes: a
/// restored claim that held the token ended the solve (`restore`), and only now does the answer itself arrive again.
fn record_unwritten_price(
    ctx: &mut DecisionCtx<'_>,
    solve: &mut Solve,
    attempt: u32,
    fact: &Fact,
) -> Result<bool> {
    let Fact::Solved(solved) = fact else { return Ok(false) };
    let is_its_answer = solve.stage == Stage::Ready && solve.task.as_ref() == Some(&solved.task);
    let is_ready =
        |entry: &Entry| entry.solve == Some(solve.id) && matches!(entry.event, Event::Ready { .. });
    if !is_its_answer || has_entry(ctx.tx, Subject::Solve(solve.id), is_ready)? {
        return Ok(false);
    }
    let event = Event::Ready { attempt, task: solved.task.clone(), cost: solved.cost };
    let more = extra_counts(&event, solve, ctx.now);
    let before = solve.clone();
    budgets::follow(ctx, solve, std::slice::from_ref(&event))?;
    indexes::update_solve(ctx.tx, &before, solve)?;
    ctx.record_with(&*solve, event, &more);
    pools::count_cost(ctx, solve.fingerprint, solved.cost)?;
    Ok(true)
}

// === applying ===

fn apply(
    ctx: &mut DecisionCtx<'_>,
    before: &Solve,
    solve: &mut Solve,
    (attempt, fact): (u32, &Fact),
    events: Vec<Event>,
) -> Result<()> {
    budgets::follow(ctx, solve, &events)?;
    for event in events {
        let more = extra_counts(&event, solve, ctx.now);
        ctx.record_with(&*solve, event, &more);
    }
    if let (Fact::Accepted { task, .. }, Stage::Submitted | Stage::Overdue) = (fact, solve.stage) {
        ctx.tx.put::<Tasks>(Text::new(task.as_str()), (solve.id, attempt))?;
    }
    if solve.stage == Stage::Queued && solve.claims.is_empty() && solve.origin != Origin::Refill {
        let events = solve.abandon(own::WITHDRAWN, ctx.now);
        budgets::follow(ctx, solve, &events)?;
        ctx.record_all(solve, events);
    }
    let claims =
        if solve.stage.is_final() { std::mem::take(&mut solve.claims) } else { Vec::new() };
    indexes::update_solve(ctx.tx, before, solve)?;
    match (solve.stage, fact) {
        (Stage::Ready, Fact::Solved(solved)) => on_solved(ctx, solve, &claims, solved),
        (Stage::Failed, _) => {
            let code = solve.failures.last().map_or(Code::from(""), |last| last.code.clone());
            fail_solve(ctx, solve, &claims, &code, &Effort::without_answer(solve))
        }
        (
            Stage::Queued
            | Stage::Intent
            | Stage::Submitted
            | Stage::Overdue
            | Stage::Ambiguous
            | Stage::Ready,
            _,
        ) => Ok(()),
    }
}

/// The counts of an event that the event itself does not contain.
fn extra_counts(event: &Event, solve: &Solve, now: Timestamp) -> Counts {
    let none = Counts::default();
    let polls = u64::from(solve.polls);
    if matches!(event, Event::Ready { .. }) {
        let took = solve.accepted_at.map_or(0, |at| now.millis().saturating_sub(at.millis()));
        return Counts { polls, solve_ms: took, times: SolveTimes::one(took), ..none };
    }
    if matches!(event, Event::TaskOver { .. }) {
        return Counts { polls, ..none };
    }
    let shared_task =
        matches!(event, Event::NotAccepted { code, .. } if code.as_str() == own::DUPLICATE_TASK);
    Counts { cost_unknown: u64::from(shared_task), ..none }
}

fn on_solved(
    ctx: &mut DecisionCtx<'_>,
    solve: &Solve,
    claims: &[ClaimId],
    solved: &Solved,
) -> Result<()> {
    pools::count_cost(ctx, solve.fingerprint, solved.cost)?;
    let (expires_at, usable_until) = solved.life.expiry(solved.ready_lower);
    let usable_until = match solve.sharing() {
        Sharing::Exclusive => usable_until.minus(margin::learned_margin(ctx.tx, solve)?),
        Sharing::Bound | Sharing::Shared => usable_until,
    };
    let token = Token {
        answer: solved.answer.clone(),
        solve: solve.id,
        task: solved.task.clone(),
        ready_lower: solved.ready_lower,
        expires_at,
        usable_until,
        cost: solved.cost,
    };
    if !token.is_usable(ctx.now) {
        delivery::record_wasted(ctx, solve, &token);
        if claims.is_empty() {
            pools::count_wasted(ctx, solve.fingerprint)?;
        }
        let effort = Effort::with_answer(solve, solved.cost);
        return fail_solve(ctx, solve, claims, &Code::from(own::TOKEN_EXPIRED), &effort);
    }
    allocate::harvest(ctx, solve, claims.first().copied(), token)?;
    dead_letters::close(ctx, solve, solve.id, solved.cost)?;
    match solve.origin {
        Origin::Orphan(parent) => dead_letters::close(ctx, solve, parent, solved.cost),
        Origin::Claim(_) | Origin::Revived { .. } | Origin::Refill => Ok(()),
    }
}

// === orphans ===

/// Opens a solve that harvests a paid task whose attempt was already replaced by another.
fn adopt(
    ctx: &mut DecisionCtx<'_>,
    parent: &mut Solve,
    attempt: u32,
    (task, sent_at): (TaskId, Timestamp),
) -> Result<Option<SolveId>> {
    let id = parent.id.orphan(attempt);
    let Some(challenge) = ctx.tx.get::<Challenges>(&parent.id)? else { return Ok(None) };
    if ctx.tx.has::<Solves>(&id)? {
        return Ok(None);
    }
    ctx.record(&*parent, Event::Orphaned { attempt, task: task.clone(), by: id });
    ctx.tx.put::<Tasks>(Text::new(task.as_str()), (id, 1))?;
    ctx.tx.put::<Challenges>(id, challenge)?;
    let orphan = Solve {
        id,
        origin: Origin::Orphan(parent.id),
        claims: Vec::new(),
        stage: Stage::Overdue,
        fence: domain::lease::Fence::default(),
        holder: None,
        attempt: 1,
        nonce: None,
        task: Some(task),
        opened_at: ctx.now,
        accepted_at: Some(sent_at),
        due: ctx.now,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        ended_at: None,
        reservations: inherited(ctx, parent, attempt)?,
        ..parent.clone()
    };
    indexes::insert_solve(ctx.tx, &orphan)?;
    Ok(Some(id))
}

/// Moves what was assumed about the attempt from the parent to its orphan, which will learn the real charge.
fn inherited(ctx: &mut DecisionCtx<'_>, parent: &mut Solve, attempt: u32) -> Result<Reservations> {
    let before = parent.clone();
    let assumed = &mut parent.reservations.assumed;
    let Some(at) = assumed.iter().position(|(of, _)| *of == attempt) else {
        return Ok(Reservations::default());
    };
    let (_, reservation) = assumed.remove(at);
    indexes::update_solve(ctx.tx, &before, parent)?;
    Ok(Reservations { open: None, assumed: vec![(1, reservation)] })
}
