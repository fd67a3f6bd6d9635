//! Holds three accounts against one another: what the workers got, what the store's ledger says, and what the provider
//! was asked to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use domain::{
    claim::Claim,
    id::{SolveId, TaskId},
    ledger::{Entry, Event},
    money::Money,
    ports::{ClaimFilter, Records, Scope},
};
use simulator::Ledger;
use stores::Backend;

use super::load::Outcome;
use crate::support::eventually;

/// Attempts by task: the solve and the number.
type Attempts<'e> = BTreeMap<&'e TaskId, BTreeSet<(Option<SolveId>, u32)>>;

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Names that workers asked for.
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
    /// Charges whose task nobody ever learned the name of.
    unknown: usize,
    /// Claims that were answered and are not there any more.
    lost_claims: usize,
    /// How often somebody was told that the store is away.
    away: usize,
}

/// Judges a run of so many names asked for: those of the load, and the probes beside it.
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
    tell_slowest(&*store.records, outcomes).await;
    figures
}

/// Waits until nothing is under way: paid tasks that nobody waits for are harvested too.
pub(super) async fn every_solve_ends(store: &Backend) {
    eventually("every solve ends", async || {
        let active = store.records.active(Scope::All, 1).await.unwrap();
        active.is_empty().then_some(())
    })
    .await;
}

/// Waits until the price of every task is known. After a loss, gateways tell what they know of paid tasks a while later
/// than the last claim ends.
pub(super) async fn every_task_is_priced(store: &Backend) {
    eventually("every task has its price", async || {
        let entries = all_entries(&*store.records).await;
        let (learned, priced) = tasks(&entries);
        learned.keys().all(|task| priced.contains_key(task)).then_some(())
    })
    .await;
}

/// The story of the claim that took longest: where the time went.
async fn tell_slowest(records: &dyn Records, outcomes: &[Outcome]) {
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

    /// What must hold whatever happened. Where the Redis forgot something, nothing more may have been paid.
    pub(super) fn hold(&self, outcomes: &[Outcome]) {
        let ended = self.served + self.failed + self.lapsed;
        let odd: Vec<_> = outcomes
            .iter()
            .filter(|outcome| {
                !["served", "solve_failed", "deadline_passed"].contains(&&*outcome.end)
            })
            .collect();
        assert_eq!(ended, outcomes.len(), "every claim ends in a way of its own: {odd:?}");
        assert!(self.claims <= self.names, "one claim per name: {self}");
        assert!(self.charges <= self.claims + self.authorised, "paid too often: {self}");
        assert!(self.unknown <= self.ambiguous, "a charge that nobody is told of: {self}");
        assert_eq!(self.lost_claims, 0, "{self}");
        // Only claims that were hit in mid-submission may stay unserved. How many those are depends on the machine.
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

pub(super) async fn all_entries(records: &dyn Records) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let from = all.last().map_or(0, |entry| entry.seq + 1);
        let page = records.entries(from, 1_000).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// What the workers saw: no token twice.
fn no_token_was_given_to_two(outcomes: &[Outcome]) {
    let mut owners = BTreeMap::new();
    for outcome in outcomes {
        if let Some(token) = &outcome.token {
            let other = owners.insert(token, outcome);
            assert!(other.is_none(), "one token for {outcome:?} and {other:?}");
        }
    }
}

/// What the ledger says: no task's token was allotted to two claims.
fn no_token_serves_two_claims(entries: &[Entry]) {
    let mut owners: BTreeMap<(SolveId, &TaskId), BTreeSet<_>> = BTreeMap::new();
    for entry in entries {
        if let Event::Allotted { paid_by, task, .. } = &entry.event {
            owners.entry((*paid_by, task)).or_default().insert(entry.claim);
        }
    }
    assert!(owners.values().all(|claims| claims.len() == 1), "a token went to two claims");
}

async fn all_claims(records: &dyn Records) -> BTreeMap<String, Claim> {
    let mut filter = ClaimFilter::all(Scope::All, 1_000);
    let mut all = BTreeMap::new();
    loop {
        let page = records.history(filter.clone()).await.unwrap();
        all.extend(page.items.into_iter().map(|claim| (claim.id.to_string(), claim)));
        filter.from = page.next;
        if filter.from.is_none() {
            return all;
        }
    }
}

/// How many of the claims that workers were told of are gone; the others must have ended.
fn lost(claims: &BTreeMap<String, Claim>, outcomes: &[Outcome]) -> usize {
    let told = outcomes.iter().filter_map(|outcome| outcome.id.as_ref());
    let found: Vec<_> = told.map(|id| claims.get(id)).collect();
    for claim in found.iter().flatten() {
        assert!(claim.state.is_final(), "claim {} still waits", claim.id);
    }
    found.iter().filter(|claim| claim.is_none()).count()
}

/// The tasks in our ledger with the attempts they were taken for, and their prices.
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

/// Every task in our ledger is the provider's, once, at the provider's price. The result is how many of the provider's
/// are not in it.
fn reconcile(entries: &[Entry], paid: &Ledger) -> usize {
    let (learned, priced) = tasks(entries);
    for (task, attempts) in &learned {
        let charged = paid.task(task).map(|task| task.cost);
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
