//! kill -9 of the real binary, repeatedly, with 200 claims in flight. The judge is the simulator's ledger, in a process
//! that never dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use domain::{
    claim::{Claim, ClaimState, Source},
    id::{ClaimId, SolveId, TaskId},
    ledger::{Entry, Event},
    ports::Records,
    time::Timestamp,
};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;
use simulator::Ledger;
use solvegate::client::Call;

use crate::support::{
    Gateway, Settings, Sim, all_claims, all_entries, allotments, eventually, kills_last, pause,
};

const IN_FLIGHT: usize = 200;

/// About one kill per second.
fn rounds() -> usize {
    usize::try_from(kills_last().as_secs()).unwrap()
}

fn settings() -> Settings {
    // The budget must not limit the authorisations under test.
    let top = "ambiguity_budget = 100000".into();
    // As long as a task takes: ten thousand tasks are polled once or twice each, not five times.
    Settings { top, log: "error", poll_ms: 900, ..Settings::default() }
}

/// The gateway resubmits one ambiguous attempt per second in total. A killed gateway leaves more of them than that, and
/// this deadline ends the claims whose turn does not come. All others are served long before.
const DEADLINE_S: u64 = 120;

/// A claim whose name is its idempotency key and its site key, so that both ledgers can be joined.
fn claim(name: &str) -> Call {
    let page = "https://shop.example.com/";
    let body =
        json!({ "kind": "turnstile", "sitekey": name, "pageurl": page, "deadline_s": DEADLINE_S });
    Call::post("/v1/solves", body).header("idempotency-key", name)
}

/// Sends all claims and returns those without an answer, which the caller retries with the same key. On a slow machine a
/// claim that was admitted before a kill may have lapsed when it is retried.
async fn claim_all(gateway: &Gateway, names: Vec<String>) -> Vec<String> {
    let claims = names.into_iter().map(async |name| {
        let reply = gateway.try_send(&claim(&name)).await;
        let is_known = reply.is_some_and(|reply| {
            reply.status.is_success() || reply.body["code"] == "deadline_passed"
        });
        (!is_known).then_some(name)
    });
    join_all(claims).await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_with_two_hundred_claims_in_flight_nothing_is_lost_or_paid_twice() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "800ms", "--ledger", "paid.jsonl"]);
    let mut chance = fastrand::Rng::new();
    eprintln!("kills drawn from seed {}", chance.get_seed());
    let mut unanswered = Vec::new();
    for round in 0..rounds() {
        let mut gateway = Gateway::with(dir.path(), &sim, &settings());
        let mut names: Vec<_> = (0..IN_FLIGHT).map(|n| format!("claim-{round}-{n}")).collect();
        names.append(&mut unanswered);
        let moment = Duration::from_millis(chance.u64(20..1_500));
        let kill = async {
            pause(moment).await;
            gateway.process.signal(Signal::KILL);
        };
        (unanswered, ()) = tokio::join!(claim_all(&gateway, names), kill);
        gateway.process.wait();
    }
    finish(dir.path(), &sim, unanswered).await;
    judge(dir.path(), &sim.ledger().await).await;
}

/// Runs the gateway once more, undisturbed, until every claim has ended.
async fn finish(dir: &Path, sim: &Sim, unanswered: Vec<String>) {
    let mut gateway = Gateway::with(dir, sim, &settings());
    let mut unanswered = unanswered;
    eventually("every claim is answered", async || {
        // There are more claims than connections per caller: refused ones are retried.
        unanswered = claim_all(&gateway, std::mem::take(&mut unanswered)).await;
        unanswered.is_empty().then_some(())
    })
    .await;
    eventually("every solve ends", async || {
        let active = gateway.send_as_admin(&Call::get("/v1/active?limit=1")).await.body;
        active["items"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.process.wait().code(), Some(0));
}

/// Reads the gateway's store, which no process uses now, and compares it with the provider's ledger.
async fn judge(dir: &Path, paid: &Ledger) {
    let store = stores::open(&format!("embedded:{}", dir.join("data").display())).unwrap();
    let entries = all_entries(&*store.records).await;
    every_claim_has_ended(&*store.records, &entries).await;
    every_learned_task_is_used(&entries, paid);
    charges_are_bounded(&entries, paid);
    no_token_serves_two_claims(&entries);
    eprintln!(
        "{} charges for {} claims, {} ambiguous, {} authorised, {} recovered",
        paid.accepted.len(),
        rounds() * IN_FLIGHT,
        count(&entries, |event| matches!(event, Event::Ambiguous { .. })),
        count(&entries, |event| matches!(event, Event::Authorised { .. })),
        count(&entries, |event| matches!(event, Event::Recovered { .. })),
    );
}

async fn every_claim_has_ended(records: &dyn Records, entries: &[Entry]) {
    let hit = solves_hit_in_mid_submission(entries);
    let solved = claims_with_a_token(entries);
    let claims = all_claims(records).await;
    for claim in claims.values() {
        let Claim { id, state, code, .. } = claim;
        assert!(state.is_final(), "claim {id} still waits");
        // How many are hit in mid-submission depends on the machine; nothing else may keep a claim from its token. This
        // test fetches none, so a served claim may lapse at its deadline.
        let was_hit = claim.solve.is_some_and(|solve| hit.contains(&solve));
        assert!(
            solved.contains(id) || was_hit,
            "claim {id} ended {state:?}, {code:?}: {:#?}",
            story(entries, claim)
        );
        assert!(*state == ClaimState::Served || code.is_some(), "claim {id} has no cause");
    }
    assert_eq!(claims.len(), rounds() * IN_FLIGHT, "one claim per key, however often it is sent");
}

fn story<'e>(entries: &'e [Entry], claim: &Claim) -> Vec<(Timestamp, &'e Event)> {
    let is_of = |entry: &&Entry| {
        entry.claim == Some(claim.id) || entry.solve.is_some() && entry.solve == claim.solve
    };
    entries.iter().filter(is_of).map(|entry| (entry.at, &entry.event)).collect()
}

fn solves_hit_in_mid_submission(entries: &[Entry]) -> BTreeSet<SolveId> {
    let hit = entries.iter().filter(|entry| matches!(entry.event, Event::Ambiguous { .. }));
    hit.filter_map(|entry| entry.solve).collect()
}

fn claims_with_a_token(entries: &[Entry]) -> BTreeSet<ClaimId> {
    let solved = entries.iter().filter(|entry| matches!(entry.event, Event::Allotted { .. }));
    solved.filter_map(|entry| entry.claim).collect()
}

fn count(entries: &[Entry], is: impl Fn(&Event) -> bool) -> usize {
    entries.iter().filter(|entry| is(&entry.event)).count()
}

/// The tasks that reached the gateway.
fn learned(entries: &[Entry]) -> BTreeSet<TaskId> {
    let task = |entry: &Entry| {
        let (Event::Accepted { task, .. } | Event::Orphaned { task, .. }) = &entry.event else {
            return None;
        };
        Some(task.clone())
    };
    entries.iter().filter_map(task).collect()
}

/// A task whose id is on disk is polled to its end by the next process.
fn every_learned_task_is_used(entries: &[Entry], paid: &Ledger) {
    let answer = |entry: &Entry| {
        let Event::Ready { task, .. } = &entry.event else { return None };
        Some(task.clone())
    };
    let ready: BTreeSet<_> = entries.iter().filter_map(answer).collect();
    for task in learned(entries) {
        assert!(paid.task(&task).is_some(), "the provider does not know {task}");
        assert!(paid.answered.contains_key(&task), "{task} was paid for and never fetched");
        assert!(ready.contains(&task), "the answer of {task} was fetched and lost");
    }
}

fn charges_are_bounded(entries: &[Entry], paid: &Ledger) {
    let authorised = count(entries, |event| matches!(event, Event::Authorised { .. }));
    let ambiguous = count(entries, |event| matches!(event, Event::Ambiguous { .. }));
    let claims = rounds() * IN_FLIGHT;
    assert!(paid.accepted.len() <= claims + authorised, "{} charges", paid.accepted.len());
    let known = learned(entries).len();
    let unknown = paid.accepted.len() - known;
    assert!(
        unknown <= ambiguous,
        "{unknown} charges are not in the ledger, {ambiguous} are ambiguous"
    );
    let mut charges: BTreeMap<&str, usize> = BTreeMap::new();
    for accepted in &paid.accepted {
        *charges.entry(accepted.sitekey.as_deref().unwrap()).or_default() += 1;
    }
    let most = charges.values().max().copied().unwrap_or_default();
    assert!(most <= 2, "one claim was charged {most} times, and one AUTHORISE is allowed");
}

fn no_token_serves_two_claims(entries: &[Entry]) {
    for (token, allotted) in allotments(entries) {
        assert_eq!(allotted.len(), 1, "the token {token:?} went to two claims");
        let is_shared = matches!(allotted[0].event, Event::Allotted { source: Source::Join, .. });
        assert!(!is_shared, "a turnstile token was shared");
    }
}
