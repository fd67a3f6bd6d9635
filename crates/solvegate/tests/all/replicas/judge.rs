//! Compares three records: the tokens that workers received, the store's ledger, and the provider's ledger.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use domain::{
    claim::Claim,
    id::{ClaimId, SolveId, TaskId},
    ledger::{Entry, Event},
    money::Money,
    ports::{Records, Scope},
};
use simulator::Ledger;
use stores::Backend;

use super::load::Outcome;
use crate::support::{all_claims, all_entries, allotments, eventually};

/// Attempts by task: the solve and the attempt number.
type Attempts<'e> = BTreeMap<&'e TaskId, BTreeSet<(Option<SolveId>, u32)>>;

#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Names that workers claimed with.
    names: usize,
    /// Claims in the store.
    claims: usize,
    served: usize,
    failed: usize,
    lapsed: usize,
    charges: usize,
    ambiguous: usize,
    authorised: usize,
    recovered: usize,
    orphaned: usize,
    /// Charges whose task never reached a gateway.
    unknown: usize,
    /// Claims that were acknowledged and are gone.
    lost_claims: usize,
    /// Answers that the store is unavailable.
    away: usize,
}

/// Judges a run with this many names: those of the load, and the probes beside it.
pub(super) async fn judge(
    store: &Backend,
    paid: &Ledger,
    outcomes: &[Outcome],
    names: usize,
) -> Figures {
    let entries = all_entries(&*store.records).await;
    let mut figures = Figures { names, charges: paid.accepted.len(), ..Figures::default() };
    figures.count_events(&entries);
    figures.count_outcomes(outcomes);
    no_token_was_given_to_two(outcomes);
    no_token_serves_two_claims(&entries);
    let claims = all_claims(&*store.records).await;
    figures.claims = claims.len();
    figures.lost_claims = lost(&claims, outcomes);
    figures.unknown = reconcile(&entries, paid);
    println!("{figures}");
    print_slowest(&*store.records, outcomes).await;
    figures
}

/// Waits until no solve is active; paid tasks that nobody waits for are harvested too.
pub(super) async fn every_solve_ends(store: &Backend) {
    eventually("every solve ends", async || {
        let active = store.records.active(Scope::All, 1).await.unwrap();
        active.is_empty().then_some(())
    })
    .await;
}

/// Waits until the price of every task is known. After a loss, gateways restore their facts about paid tasks some time
/// after the last claim ends.
pub(super) async fn every_task_is_priced(store: &Backend) {
    eventually("every task has its price", async || {
        let entries = all_entries(&*store.records).await;
        let (learned, priced) = tasks(&entries);
        learned.keys().all(|task| priced.contains_key(task)).then_some(())
    })
    .await;
}

/// Prints where the slowest claim spent its time.
async fn print_slowest(records: &dyn Records, outcomes: &[Outcome]) {
    let slowest = outcomes.iter().max_by_key(|outcome| outcome.took).unwrap();
    println!("the slowest claim took {:?}:", slowest.took);
    let Some(id) = slowest.id.as_ref().and_then(|id| id.parse().ok()) else { return };
    let story = records.explain(id).await.unwrap();
    for entry in &story {
        let after = entry.at.since(story[0].at);
        let event = format!("{:?}", entry.event);
        println!("  {after:>8.1?} {}", event.split(' ').next().unwrap_or_default());
    }
}

// === impl Figures ===

impl Figures {
    fn count_events(&mut self, entries: &[Entry]) {
        let count =
            |is: fn(&Event) -> bool| entries.iter().filter(|entry| is(&entry.event)).count();
        self.ambiguous = count(|event| matches!(event, Event::Ambiguous { .. }));
        self.authorised = count(|event| matches!(event, Event::Authorised { .. }));
        self.recovered = count(|event| matches!(event, Event::Recovered { .. }));
        self.orphaned = count(|event| matches!(event, Event::Orphaned { .. }));
    }

    fn count_outcomes(&mut self, outcomes: &[Outcome]) {
        let count = |end: &str| outcomes.iter().filter(|outcome| outcome.end == end).count();
        self.served = count("served");
        self.failed = count("solve_failed");
        self.lapsed = count("deadline_passed");
        self.away = outcomes.iter().map(|outcome| outcome.away).sum();
    }

    /// The invariants of every run. A loss of writes must not have caused further charges.
    pub(super) fn hold(&self, outcomes: &[Outcome]) {
        let ended = self.served + self.failed + self.lapsed;
        let odd: Vec<_> = outcomes
            .iter()
            .filter(|outcome| {
                !["served", "solve_failed", "deadline_passed"].contains(&&*outcome.end)
            })
            .collect();
        assert_eq!(ended, outcomes.len(), "every claim has a known end: {odd:?}");
        assert!(self.claims <= self.names, "one claim per name: {self}");
        assert!(self.charges <= self.claims + self.authorised, "paid too often: {self}");
        assert!(self.unknown <= self.ambiguous, "a charge without an ambiguous attempt: {self}");
        assert_eq!(self.lost_claims, 0, "{self}");
        // Only claims that were hit in mid-submission may stay unserved. Their number depends on the machine.
        assert!(self.failed + self.lapsed <= self.ambiguous, "{self}");
        assert!(self.served > 0, "{self}");
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, served, failed, lapsed, charges, .. } = self;
        let Self { ambiguous, authorised, recovered, orphaned, unknown, .. } = self;
        write!(
            f,
            "{claims} claims: {served} of the load served, {failed} failed, {lapsed} lapsed; "
        )?;
        write!(f, "{charges} charges, {ambiguous} ambiguous, {authorised} authorised, ")?;
        write!(f, "{recovered} recovered, {orphaned} orphaned, {unknown} with unknown task; ")?;
        write!(f, "lost: {} claims; 503 said {} times", self.lost_claims, self.away)
    }
}

/// The workers' view: no token was delivered to two claims.
fn no_token_was_given_to_two(outcomes: &[Outcome]) {
    let mut owners = BTreeMap::new();
    for outcome in outcomes {
        if let Some(token) = &outcome.token {
            let other = owners.insert(token, outcome);
            assert!(other.is_none(), "one token for {outcome:?} and {other:?}");
        }
    }
}

/// The ledger's view: no token was allotted to two claims. After a loss, gateways may record an allotment again.
fn no_token_serves_two_claims(entries: &[Entry]) {
    for (token, allotted) in allotments(entries) {
        let claims: BTreeSet<_> = allotted.iter().map(|entry| entry.claim).collect();
        assert_eq!(claims.len(), 1, "the token {token:?} went to two claims");
    }
}

/// The number of acknowledged claims that are gone; the others must have ended.
fn lost(claims: &BTreeMap<ClaimId, Claim>, outcomes: &[Outcome]) -> usize {
    let acknowledged = outcomes.iter().filter_map(|outcome| outcome.id.as_ref());
    let found: Vec<_> = acknowledged.map(|id| claims.get(&id.parse().ok()?)).collect();
    for claim in found.iter().flatten() {
        assert!(claim.state.is_final(), "claim {} still waits", claim.id);
    }
    found.iter().filter(|claim| claim.is_none()).count()
}

/// The tasks in our ledger with their attempts, and their prices.
fn tasks(entries: &[Entry]) -> (Attempts<'_>, BTreeMap<&TaskId, Money>) {
    let mut learned: Attempts<'_> = BTreeMap::new();
    let mut priced: BTreeMap<&TaskId, Money> = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::Accepted { task, attempt } | Event::Orphaned { task, attempt, .. } => {
                learned.entry(task).or_default().insert((entry.solve, *attempt));
            }
            Event::Ready { task, cost: Some(cost), .. } => drop(priced.insert(task, *cost)),
            _ => {}
        }
    }
    (learned, priced)
}

/// Every task in our ledger is in the provider's, once and at the same price. Returns the number of the provider's
/// tasks that are not in ours.
fn reconcile(entries: &[Entry], paid: &Ledger) -> usize {
    let (learned, priced) = tasks(entries);
    let costs: BTreeMap<&TaskId, Money> =
        paid.accepted.iter().map(|accepted| (&accepted.task, accepted.cost)).collect();
    for (task, attempts) in &learned {
        let charged = costs.get(task).copied();
        let about = |entry: &&Entry| attempts.iter().any(|(solve, _)| entry.solve == *solve);
        if priced.get(task) != charged.as_ref() {
            for entry in entries.iter().filter(about) {
                println!("{:?} {:?}", entry.at, entry.event);
            }
        }
        assert_eq!(priced.get(task), charged.as_ref(), "{task}: our price and the provider's");
        assert_eq!(attempts.len(), 1, "{task} was taken for several attempts: {attempts:?}");
    }
    let known = priced.values().fold(Money::ZERO, |sum, cost| sum + *cost);
    let unknown = paid.accepted.iter().filter(|accepted| !learned.contains_key(&accepted.task));
    let unknown: Vec<Money> = unknown.map(|accepted| accepted.cost).collect();
    println!("charged {}: {known} is in our ledger", paid.charged);
    assert_eq!(unknown.iter().fold(known, |sum, cost| sum + *cost), paid.charged);
    unknown.len()
}
