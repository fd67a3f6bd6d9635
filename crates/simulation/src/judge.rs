//! The judge: the ledger's own invariants, the provider's ledger, and what the workers got, held against each other.

mod retries;
mod standing;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use domain::{
    claim::Claim,
    id::{Nonce, TaskId},
    invariant::Checker,
    ledger::{Entry, Event},
    ports::{ClaimFilter, Scope},
    retry::Class,
    time::Timestamp,
};
use sha2::{Digest, Sha256};
use simulator::task_of;

use crate::world::Traces;

/// What a run showed.
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

/// Sums the judge needs from the ledger.
#[derive(Default)]
struct Sums {
    intents: BTreeMap<Nonce, usize>,
    known: BTreeSet<TaskId>,
    over: BTreeSet<TaskId>,
    tasks: BTreeMap<(domain::id::SolveId, u32), TaskId>,
    solves: usize,
    ended_tasks: usize,
    authorised: usize,
    ambiguous: usize,
}

pub fn judge(traces: &Traces) -> Verdict {
    let entries = all_entries(traces);
    let mut checker = Checker::default();
    for entry in &entries {
        checker.observe(entry);
    }
    let broken = checker.violations().iter().cloned().chain(checker.unfinished());
    let mut violations: Vec<String> = broken.map(|violation| violation.to_string()).collect();
    let sums = Sums::of(&entries);
    violations.extend(against_provider(traces, &sums));
    violations.extend(against_workers(traces));
    violations.extend(still_active(traces));
    violations.extend(against_rules(traces, &entries));
    violations.extend(callbacks(traces));
    violations.extend(standing::pools(traces, &entries));
    let table = engine::EngineConfig::default().retry;
    violations.extend(retries::retries(traces, &entries, &table));
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

pub fn all_entries(traces: &Traces) -> Vec<Entry> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(traces.backend.records.entries(0, usize::MAX)).unwrap()
}

/// After the time of healing nothing is under way any more.
fn still_active(traces: &Traces) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let active = runtime.block_on(traces.backend.records.active(Scope::All, 100)).unwrap();
    (!active.is_empty()).then(|| format!("still under way: {active:?}"))
}

/// I17, I20, I22, I28 and the uniqueness of revivals, as far as ledger and gateways show them.
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
            Event::DeadLettered { code } if table.rule(code).class == Class::Account => {
                broken.push(format!("I28: a dead letter with {code}"));
            }
            Event::Revived { claim, .. } if !revived.insert((entry.solve, *claim)) => {
                broken.push(format!("I19: {:?} was revived twice as {claim}", entry.solve));
            }
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

/// I17: one gateway asks for a task at most twenty times, questions that told nothing apart, and a second apart.
fn too_many_polls(polls: &[(TaskId, Timestamp)]) -> Vec<String> {
    let mut seen: BTreeMap<&TaskId, Vec<Timestamp>> = BTreeMap::new();
    for (task, at) in polls {
        seen.entry(task).or_default().push(*at);
    }
    let mut broken = Vec::new();
    for (task, times) in seen {
        if times.len() > 45 {
            broken.push(format!("I17: task {task} was asked for {} times", times.len()));
        }
        let close = |pair: &&[Timestamp]| pair[1].since(pair[0]).as_millis() < 990;
        if let Some([first, second]) = times.windows(2).find(close) {
            broken.push(format!("I17: task {task} was asked for at {first} and {second}"));
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

/// Every end that was to be told was told.
fn callbacks(traces: &Traces) -> Vec<String> {
    let claims = all_claims(traces);
    let wanted = claims.iter().filter(|claim| claim.callback_url.is_some());
    let message = |claim: &Claim| format!("msg_{}_{}", claim.id, claim.state.name());
    let untold = wanted.filter(|claim| !traces.told.contains(&message(claim)));
    untold
        .map(|claim| format!("the end of {} was never told: {:?}", claim.id, claim.state))
        .collect()
}

fn all_claims(traces: &Traces) -> Vec<Claim> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let all = ClaimFilter::all(Scope::All, usize::MAX);
    runtime.block_on(traces.backend.records.history(all)).unwrap().items
}

impl Sums {
    fn of(entries: &[Entry]) -> Self {
        let mut sums = Self::default();
        for entry in entries {
            sums.add(entry);
        }
        sums
    }
    fn add(&mut self, entry: &Entry) {
        match &entry.event {
            Event::Opened { .. } | Event::Ordered { .. } => self.solves += 1,
            Event::Intent { nonce, .. } => *self.intents.entry(*nonce).or_default() += 1,
            Event::Accepted { task, attempt } => {
                self.known.insert(task.clone());
                self.tasks.insert((entry.solve.unwrap(), *attempt), task.clone());
            }
            Event::Orphaned { task, .. } => drop(self.known.insert(task.clone())),
            Event::TaskOver { attempt, code, .. } => {
                self.ended_tasks += 1;
                let task = self.tasks.get(&(entry.solve.unwrap(), *attempt));
                if code.as_str() == "ERROR_CAPTCHA_UNSOLVABLE" {
                    self.over.extend(task.cloned());
                }
            }
            Event::Authorised { .. } => self.authorised += 1,
            Event::Ambiguous { .. } => self.ambiguous += 1,
            _ => {}
        }
    }
}

/// Paid once, or written down (P1); intent before money (I2); no known task lost (I5); the books agree (I24).
fn against_provider(traces: &Traces, sums: &Sums) -> Vec<String> {
    let ledger = traces.account.ledger();
    let mut broken = Vec::new();
    let paid = ledger.accepted.len();
    let most = sums.solves + sums.ended_tasks + sums.authorised;
    if paid > most {
        broken.push(format!("P1: {paid} tasks paid, at most {most} explained"));
    }
    for accepted in &ledger.accepted {
        let intents =
            accepted.nonce.and_then(|nonce| sums.intents.get(&nonce)).copied().unwrap_or(0);
        if intents != 1 {
            broken
                .push(format!("I2: task {} was submitted under {intents} intents", accepted.task));
        }
    }
    let unknown =
        ledger.accepted.iter().filter(|accepted| !sums.known.contains(&accepted.task)).count();
    if unknown > sums.ambiguous {
        broken.push(format!(
            "I24: {unknown} paid tasks unknown to us, only {} ambiguous",
            sums.ambiguous
        ));
    }
    // I5: what a gateway heard of, and did not take along in a crash, is in the ledger.
    let alive = traces.lives.iter().filter(|life| !life.crashed.load(Ordering::SeqCst));
    for task in alive.flat_map(|life| life.heard.lock().unwrap().clone()) {
        if !sums.known.contains(&task) {
            broken.push(format!("I5: task {task} was heard of and forgotten"));
        }
    }
    for task in &sums.over {
        if ledger.task(task).is_some_and(|accepted| accepted.ready_at.is_some()) {
            broken.push(format!("task {task} was taken for over, the provider solved it"));
        }
    }
    broken
}

/// One exclusive token, one piece of work (P3); never stale in true time (P4).
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
            broken.push(format!("a token nobody paid for: {}", got.work));
            continue;
        };
        let age = got.at.since(ready);
        if age > got.usable + traces.slack {
            broken.push(format!("P4: {} got a token {age:?} old", got.work));
        }
    }
    broken
}
