//! Judges a finished run: compares the ledger, the provider's ledger and the tokens that workers received. A run that
//! the monitor ended early has only the monitor's violations, because nothing had the time to end.

mod pools;
mod retries;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use domain::{
    callback::Callback,
    claim::{Claim, ClaimState},
    counts::check::differences,
    id::TaskId,
    ledger::{Entry, Event},
    ports::{ClaimFilter, Scope, TotalsFilter},
    retry::Class,
    time::{Day, Timestamp},
};
use sha2::{Digest, Sha256};
use simulator::task_of;

use crate::{keys, monitor::Observed, totals::Totals, world::Traces};

pub struct Verdict {
    pub violations: Vec<String>,
    /// Hash over the whole history.
    pub history: String,
    pub entries: usize,
    pub paid: usize,
    pub served: usize,
    pub crashes: usize,
    pub ordered: usize,
}

pub fn judge(traces: &Traces) -> Verdict {
    let entries = traces.observed.entries();
    let early = &traces.observed.violations;
    let violations = if early.is_empty() { after_the_run(traces, &entries) } else { early.clone() };
    let mut history = Sha256::new();
    for entry in &entries {
        history.update(format!("{entry:?}\n"));
    }
    Verdict {
        violations,
        history: format!("{:x}", bytes::Bytes::copy_from_slice(&history.finalize())),
        entries: entries.len(),
        paid: traces.account.ledger().accepted.len(),
        served: traces.got.len(),
        crashes: traces.crashes,
        ordered: entries.iter().filter(|e| matches!(e.event, Event::Ordered { .. })).count(),
    }
}

/// Checks that need a complete run or more than one ledger.
fn after_the_run(traces: &Traces, entries: &[Entry]) -> Vec<String> {
    let Observed { checker, totals, .. } = &traces.observed;
    let unfinished = checker.unfinished();
    let mut violations: Vec<String> = unfinished.iter().map(ToString::to_string).collect();
    violations.extend(rewritten(traces, entries));
    violations.extend(against_provider(traces, totals));
    violations.extend(against_workers(traces));
    violations.extend(still_active(traces));
    violations.extend(against_rules(traces, entries));
    violations.extend(callbacks(traces));
    violations.extend(books(traces, entries));
    violations.extend(keys::paid_again(&all_claims(traces), &traces.got));
    violations.extend(pools::violations(traces, entries));
    let table = engine::EngineConfig::default().retry;
    violations.extend(retries::retries(traces, entries, &table));
    violations
}

/// The final ledger must equal the entries appended during the run.
fn rewritten(traces: &Traces, appended: &[Entry]) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let stored = runtime.block_on(traces.backend.records.entries(0, usize::MAX)).unwrap();
    (stored != appended).then(|| "the ledger was rewritten".to_owned())
}

/// After the quiet period no solve is active.
fn still_active(traces: &Traces) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let active = runtime.block_on(traces.backend.records.active(Scope::All, 100)).unwrap();
    (!active.is_empty()).then(|| format!("still under way: {active:?}"))
}

/// I17, I20, I22, I28 and the uniqueness of revivals, from the ledger and the gateways' records.
fn against_rules(traces: &Traces, entries: &[Entry]) -> Vec<String> {
    let mut broken = Vec::new();
    for life in &traces.lives {
        broken.extend(too_many_polls(&life.polls.lock().unwrap()));
    }
    let table = engine::EngineConfig::default().retry;
    let mut revived = BTreeSet::new();
    let mut died = BTreeMap::<_, u32>::new();
    for entry in entries {
        match &entry.event {
            Event::Ended { state: ClaimState::Failed, code: Some(code) }
                if table.rule(code).class == Class::Account =>
            {
                broken.push(format!("I28: a claim failed with {code}"));
            }
            Event::Revived { claim, .. } if !revived.insert((entry.solve, *claim)) => {
                broken.push(format!("I19: {:?} was revived twice as {claim}", entry.solve));
            }
            // Open again, it can be revived as the same claim, by that claim's key.
            Event::DeadLetterReopened { .. } => revived.retain(|(solve, _)| *solve != entry.solve),
            Event::Ambiguous { why, .. } if why.as_str().starts_with("holder died") => {
                *died.entry(entry.solve).or_default() += 1;
            }
            Event::Intent { .. } if died.get(&entry.solve).is_some_and(|times| *times > 3) => {
                broken.push(format!("I20: {:?} was tried again", entry.solve));
            }
            _ => {}
        }
    }
    let calm = traces.plan.gateways == 1 && !traces.plan.crashes && !traces.plan.pauses;
    let most = most_in_flight(entries);
    if calm && !traces.plan.auto && most > traces.plan.slots {
        broken.push(format!("I22: {most} tasks at once with {} slots", traces.plan.slots));
    }
    broken
}

/// I17: one gateway polls a task at most twenty times, not counting unintelligible replies, and at least a second apart.
fn too_many_polls(polls: &[(TaskId, Timestamp)]) -> Vec<String> {
    let mut seen: BTreeMap<&TaskId, Vec<Timestamp>> = BTreeMap::new();
    for (task, at) in polls {
        seen.entry(task).or_default().push(*at);
    }
    let mut broken = Vec::new();
    for (task, times) in seen {
        if times.len() > 45 {
            broken.push(format!("I17: task {task} was polled {} times", times.len()));
        }
        let close = |pair: &&[Timestamp]| pair[1].since(pair[0]).as_millis() < 990;
        if let Some([first, second]) = times.windows(2).find(close) {
            broken.push(format!("I17: task {task} was polled at {first} and {second}"));
        }
    }
    broken
}

fn most_in_flight(entries: &[Entry]) -> usize {
    let mut out = BTreeSet::new();
    let mut most = 0;
    for entry in entries {
        match &entry.event {
            Event::Accepted { .. } => drop(out.insert(entry.solve)),
            Event::Orphaned { by, .. } => drop(out.insert(Some(*by))),
            Event::TaskOver { .. } | Event::Ready { .. } => drop(out.remove(&entry.solve)),
            _ => {}
        }
        most = most.max(out.len());
    }
    most
}

/// Every end of a claim with a callback reached the receiver.
fn callbacks(traces: &Traces) -> Vec<String> {
    let claims = all_claims(traces);
    let wanted = claims.iter().filter(|claim| claim.callback_url.is_some());
    let message = |claim: &Claim| {
        let callback = Callback::for_claim(claim, claim.opened_at).expect("it has an address");
        callback.message_id()
    };
    let untold = wanted.filter(|claim| !traces.delivered_callbacks.contains(&message(claim)));
    untold
        .map(|claim| format!("the end of {} was never announced: {:?}", claim.id, claim.state))
        .collect()
}

/// The daily sums agree with the claims and the ledger.
fn books(traces: &Traces, entries: &[Entry]) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (from, to) = (Day::from_number(0), Day::from_number(u32::MAX));
    let ask = TotalsFilter { scope: Scope::All, from, to };
    let totals = runtime.block_on(traces.backend.records.totals(ask)).unwrap();
    differences(&all_claims(traces), entries, &totals)
}

fn all_claims(traces: &Traces) -> Vec<Claim> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let all = ClaimFilter::all(Scope::All, usize::MAX);
    runtime.block_on(traces.backend.records.history(all)).unwrap().items
}

/// One intent for each paid task (I2); no known task lost (I5); the ledgers agree (I24).
fn against_provider(traces: &Traces, totals: &Totals) -> Vec<String> {
    let ledger = traces.account.ledger();
    let mut broken = Vec::new();
    for accepted in &ledger.accepted {
        let intents =
            accepted.nonce.and_then(|nonce| totals.intents.get(&nonce)).copied().unwrap_or(0);
        if intents != 1 {
            broken
                .push(format!("I2: task {} was submitted under {intents} intents", accepted.task));
        }
    }
    let unknown =
        ledger.accepted.iter().filter(|accepted| !totals.known.contains(&accepted.task)).count();
    if unknown > totals.ambiguous {
        broken.push(format!(
            "I24: {unknown} paid tasks unknown to us, only {} ambiguous",
            totals.ambiguous
        ));
    }
    // I5: every task that reached a gateway is in the ledger, unless that gateway crashed.
    let alive = traces.lives.iter().filter(|life| !life.crashed.load(Ordering::SeqCst));
    for task in alive.flat_map(|life| life.heard.lock().unwrap().clone()) {
        if !totals.known.contains(&task) {
            broken.push(format!("I5: task {task} reached a gateway and is not in the ledger"));
        }
    }
    for task in &totals.over {
        if ledger.task(task).is_some_and(|accepted| accepted.ready_at.is_some()) {
            broken.push(format!("task {task} was taken for over, the provider solved it"));
        }
    }
    broken
}

/// One exclusive token for one piece of work (P3); never expired in true time (P4).
fn against_workers(traces: &Traces) -> Vec<String> {
    let ledger = traces.account.ledger();
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut broken = Vec::new();
    for got in traces.got.iter().filter(|got| got.exclusive) {
        let owner = *owners.entry(&got.token).or_insert(&got.work);
        if owner != got.work {
            broken.push(format!("P3: one token for {owner} and for {}", got.work));
        }
        let ready = task_of(&got.token)
            .and_then(|task| ledger.task(&task).and_then(|accepted| accepted.ready_at));
        let Some(ready) = ready else {
            broken.push(format!("a token that was not paid for: {}", got.work));
            continue;
        };
        let age = got.at.since(ready);
        if age > got.usable + traces.slack {
            broken.push(format!("P4: {} got a token {age:?} old", got.work));
        }
    }
    broken
}
