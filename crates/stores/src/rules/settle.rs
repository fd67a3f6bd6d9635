//! Facts: what the provider said about an attempt, taken from whoever holds it. Telling one twice changes nothing.

use domain::{
    challenge::Sharing,
    id::{ClaimId, SolveId, TaskId},
    ledger::{Counts, Entry, Event},
    ports::{Settled, StoreError},
    retry::{Code, Verdict, own},
    solve::{Fact, Learned, Origin, Solve, Solved, Stage},
    time::Timestamp,
    token::Token,
};

use crate::{
    keys::Text,
    tables::{Challenges, Solves, Subject, Tasks},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{
    bury::{bury, close_letter},
    keep, margin, missing,
    place::{self, Effort},
    pools,
    step::{Step, has_entry},
};

/// The answer came when its token was already dead.
pub(crate) const TOKEN_EXPIRED: &str = "TOKEN_EXPIRED";

/// Takes a fact about an attempt.
pub(crate) fn settle(
    tx: &mut dyn WriteTx,
    id: SolveId,
    attempt: u32,
    fact: &Fact,
    now: Timestamp,
) -> Result<Settled, StoreError> {
    let before = tx.get::<Solves>(&id)?.ok_or_else(|| {
        missing(tx, "solves", format!("a fact came about the unknown solve {id}"))
    })?;
    let mut solve = before.clone();
    let mut step = Step::new(tx, now);
    let mut orphan = None;
    let fresh = match learn(step.tx, &mut solve, attempt, fact, now)? {
        Learned::Known => record_unwritten_price(&mut step, &solve, attempt, fact)?,
        Learned::Moved(events) => {
            follow(&mut step, &before, &mut solve, (attempt, fact), events)?;
            true
        }
        Learned::Orphaned { task, sent_at } => {
            orphan = adopt(&mut step, &solve, attempt, (task, sent_at))?;
            orphan.is_some()
        }
    };
    let ended = std::mem::take(&mut step.ended);
    step.finish()?;
    Ok(Settled { solve, fresh, ended, orphan })
}

// === learning ===

/// Whose a task is, seen from one attempt.
enum Owner {
    Nobody,
    This,
    Another,
}

fn learn(
    tx: &dyn ReadTx,
    solve: &mut Solve,
    attempt: u32,
    fact: &Fact,
    now: Timestamp,
) -> Result<Learned, StoreError> {
    // There is nothing to know about an attempt that was never made.
    if attempt == 0 || attempt > solve.attempt {
        return Ok(Learned::Known);
    }
    let Fact::Accepted { task, .. } = fact else { return Ok(solve.learn(attempt, fact, now)) };
    Ok(match owner(tx, task, solve.id, attempt)? {
        Owner::Nobody => solve.learn(attempt, fact, now),
        Owner::This => Learned::Known,
        Owner::Another => quarantine(solve, attempt, now),
    })
}

fn owner(
    tx: &dyn ReadTx,
    task: &TaskId,
    solve: SolveId,
    attempt: u32,
) -> Result<Owner, StoreError> {
    Ok(match tx.get::<Tasks>(&Text::new(task.as_str()))? {
        None => Owner::Nobody,
        Some(owner) if owner == (solve, attempt) || owner.0 == solve.orphan(attempt) => Owner::This,
        Some(_) => Owner::Another,
    })
}

/// The provider named a task that is another's: two solves never share one, so this one gets nothing and ends.
/// Whether it was charged, nobody knows.
fn quarantine(solve: &mut Solve, attempt: u32, now: Timestamp) -> Learned {
    let code = Code::from(own::DUPLICATE_TASK);
    let refused = Fact::NotAccepted { code, verdict: Verdict::GiveUp };
    let learned = solve.learn(attempt, &refused, now);
    if let (Learned::Moved(_), Some(failure)) = (&learned, solve.failures.last_mut()) {
        failure.cost = None;
    }
    learned
}

/// Writes the price of an answer that the solve has and the ledger lacks. That happens after a store lost writes: the
/// claim that already held the token ended its solve (`restore`), and only now does the answer itself arrive again.
fn record_unwritten_price(
    step: &mut Step<'_>,
    solve: &Solve,
    attempt: u32,
    fact: &Fact,
) -> Result<bool, StoreError> {
    let Fact::Solved(solved) = fact else { return Ok(false) };
    let is_its_answer = solve.stage == Stage::Ready && solve.task.as_ref() == Some(&solved.task);
    let is_ready =
        |entry: &Entry| entry.solve == Some(solve.id) && matches!(entry.event, Event::Ready { .. });
    if !is_its_answer || has_entry(step.tx, Subject::Solve(solve.id), is_ready)? {
        return Ok(false);
    }
    let event = Event::Ready { attempt, task: solved.task.clone(), cost: solved.cost };
    let more = unsaid(&event, solve, step.now);
    step.tell_with(solve, event, more);
    pools::paid(step, solve.fingerprint, solved.cost)?;
    Ok(true)
}

// === what follows ===

fn follow(
    step: &mut Step<'_>,
    before: &Solve,
    solve: &mut Solve,
    (attempt, fact): (u32, &Fact),
    events: Vec<Event>,
) -> Result<(), StoreError> {
    for event in events {
        let more = unsaid(&event, solve, step.now);
        step.tell_with(&*solve, event, more);
    }
    if let (Fact::Accepted { task, .. }, Stage::Submitted | Stage::Overdue) = (fact, solve.stage) {
        step.tx.put::<Tasks>(Text::new(task.as_str()), (solve.id, attempt))?;
    }
    if solve.stage == Stage::Queued && solve.claims.is_empty() && solve.origin != Origin::Refill {
        let events = solve.abandon(own::WITHDRAWN, step.now);
        step.tell_all(solve, events);
    }
    let claims =
        if solve.stage.is_final() { std::mem::take(&mut solve.claims) } else { Vec::new() };
    keep::solve(step.tx, before, solve)?;
    match (solve.stage, fact) {
        (Stage::Ready, Fact::Solved(solved)) => ripen(step, solve, &claims, solved),
        (Stage::Failed, _) => {
            let code = solve.failures.last().map_or(Code::from(""), |last| last.code.clone());
            bury(step, solve, &claims, &code, &Effort::so_far(solve))
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

/// What an event counts for and does not say.
fn unsaid(event: &Event, solve: &Solve, now: Timestamp) -> Counts {
    let none = Counts::default();
    let polls = u64::from(solve.polls);
    if matches!(event, Event::Ready { .. }) {
        let took = solve.accepted_at.map_or(0, |at| now.millis().saturating_sub(at.millis()));
        return Counts { polls, solve_ms: took, ..none };
    }
    if matches!(event, Event::TaskOver { .. }) {
        return Counts { polls, ..none };
    }
    let shared_task =
        matches!(event, Event::NotAccepted { code, .. } if code.as_str() == own::DUPLICATE_TASK);
    Counts { cost_unknown: u64::from(shared_task), ..none }
}

fn ripen(
    step: &mut Step<'_>,
    solve: &Solve,
    claims: &[ClaimId],
    solved: &Solved,
) -> Result<(), StoreError> {
    pools::paid(step, solve.fingerprint, solved.cost)?;
    let (expires_at, usable_until) = solved.life.of(solved.ready_lower);
    let usable_until = match solve.sharing() {
        Sharing::Exclusive => usable_until.minus(margin::extra(step.tx, solve)?),
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
    if !token.is_usable(step.now) {
        place::waste(step, solve, &token);
        if claims.is_empty() {
            pools::wasted(step, solve.fingerprint)?;
        }
        let effort = Effort::of(solve, solved.cost);
        return bury(step, solve, claims, &Code::from(TOKEN_EXPIRED), &effort);
    }
    place::harvest(step, solve, claims.first().copied(), token)?;
    close_letter(step, solve, solve.id, solved.cost)?;
    match solve.origin {
        Origin::Orphan(parent) => close_letter(step, solve, parent, solved.cost),
        Origin::Claim(_) | Origin::Revived { .. } | Origin::Refill => Ok(()),
    }
}

// === orphans ===

/// Opens a solve that harvests a paid task whose attempt was already replaced.
fn adopt(
    step: &mut Step<'_>,
    parent: &Solve,
    attempt: u32,
    (task, sent_at): (TaskId, Timestamp),
) -> Result<Option<SolveId>, StoreError> {
    let id = parent.id.orphan(attempt);
    let Some(challenge) = step.tx.get::<Challenges>(&parent.id)? else { return Ok(None) };
    if step.tx.has::<Solves>(&id)? {
        return Ok(None);
    }
    step.tell(parent, Event::Orphaned { attempt, task: task.clone(), by: id });
    step.tx.put::<Tasks>(Text::new(task.as_str()), (id, 1))?;
    step.tx.put::<Challenges>(id, challenge)?;
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
        opened_at: step.now,
        accepted_at: Some(sent_at),
        due: step.now,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        ended_at: None,
        ..parent.clone()
    };
    keep::new_solve(step.tx, &orphan)?;
    Ok(Some(id))
}
