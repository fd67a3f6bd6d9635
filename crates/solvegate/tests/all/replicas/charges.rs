//! Compares the records claim by claim, where `judge` compares sums: each charge of the provider belongs to one attempt of one
//! claim, and the history says what the workers saw. Holds for stores that lose no acknowledged writes.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    claim::{Claim, ClaimState},
    id::{ClaimId, SolveId, TaskId},
    ledger::{Entry, Event},
    ports::Records,
};
use simulator::Ledger;

use super::load::Outcome;
use crate::support::{all_claims, all_entries};

/// What our ledger says about the attempts of one claim.
#[derive(Debug, Default)]
struct Attempts {
    intended: BTreeSet<u32>,
    /// Attempts whose reply was lost, at first.
    ambiguous: BTreeSet<u32>,
    authorised: BTreeSet<u32>,
    /// Tasks by attempt.
    tasks: BTreeMap<u32, BTreeSet<TaskId>>,
}

pub(super) async fn every_charge_is_explained(
    records: &dyn Records,
    paid: &Ledger,
    outcomes: &[Outcome],
) {
    let claims = all_claims(records).await;
    let claimed = by_sitekey(&claims);
    let entries = all_entries(records).await;
    let solves = attempts(&entries);
    let charges = charges(paid);
    for (sitekey, claim) in &claimed {
        let solve = claim.solve.expect("an exclusive challenge is not served from stock");
        let attempts = &solves[&solve];
        attempts.explain(charges.get(*sitekey).unwrap_or(&BTreeSet::new()), claim);
    }
    for (sitekey, tasks) in &charges {
        assert!(claimed.contains_key(*sitekey), "{tasks:?} for {sitekey}, which nobody claimed");
    }
    for outcome in outcomes {
        agrees(&claims, outcome);
    }
}

/// The provider's tasks by site key.
fn charges(paid: &Ledger) -> BTreeMap<&str, BTreeSet<&TaskId>> {
    let mut all: BTreeMap<&str, BTreeSet<&TaskId>> = BTreeMap::new();
    for task in &paid.accepted {
        let sitekey = task.sitekey.as_deref().expect("each claim has one");
        assert!(all.entry(sitekey).or_default().insert(&task.task), "{} twice", task.task);
    }
    all
}

/// Every claim of these tests has a site key of its own.
fn by_sitekey(claims: &BTreeMap<ClaimId, Claim>) -> BTreeMap<&str, &Claim> {
    let mut all = BTreeMap::new();
    for claim in claims.values() {
        let sitekey = claim.sitekey.as_deref().expect("each has one");
        let other = all.insert(sitekey, claim);
        assert!(other.is_none(), "two claims of one worker: {claim:?} and {other:?}");
    }
    all
}

fn attempts(entries: &[Entry]) -> BTreeMap<SolveId, Attempts> {
    let mut all: BTreeMap<SolveId, Attempts> = BTreeMap::new();
    for entry in entries {
        let Some(solve) = entry.solve else { continue };
        let of = all.entry(solve).or_default();
        match &entry.event {
            Event::Intent { attempt, .. } => drop(of.intended.insert(*attempt)),
            Event::Ambiguous { attempt, .. } => drop(of.ambiguous.insert(*attempt)),
            Event::Authorised { attempt, .. } => drop(of.authorised.insert(*attempt)),
            Event::Accepted { attempt, task } | Event::Orphaned { attempt, task, .. } => {
                of.tasks.entry(*attempt).or_default().insert(task.clone());
            }
            _ => {}
        }
    }
    all
}

impl Attempts {
    /// One charge, and one more for each AUTHORISE; one task for each attempt; and a task that we do not know was paid by
    /// an attempt whose reply was lost.
    fn explain(&self, charged: &BTreeSet<&TaskId>, claim: &Claim) {
        let context = || format!("{} {:?}: {charged:?} {self:?}", claim.id, claim.sitekey);
        assert!(charged.len() <= 1 + self.authorised.len(), "{}", context());
        assert!(charged.len() <= self.intended.len(), "{}", context());
        let known: BTreeSet<&TaskId> = self.tasks.values().flatten().collect();
        assert!(self.tasks.values().all(|tasks| tasks.len() == 1), "{}", context());
        assert!(known.is_subset(charged), "{}", context());
        let lost = self.ambiguous.iter().filter(|attempt| !self.tasks.contains_key(*attempt));
        assert!(charged.len() - known.len() <= lost.count(), "{}", context());
    }
}

/// The history says what the worker saw.
fn agrees(claims: &BTreeMap<ClaimId, Claim>, outcome: &Outcome) {
    let id = outcome.id.as_ref().and_then(|id| id.parse().ok());
    let Some(claim) = id.and_then(|id: ClaimId| claims.get(&id)) else {
        assert!(
            outcome.token.is_none(),
            "a token of a claim that is not in the history: {outcome:?}"
        );
        return;
    };
    let is_served = claim.state == ClaimState::Served;
    assert_eq!(is_served, outcome.token.is_some(), "{outcome:?} {claim:?}");
    assert_eq!(is_served, claim.delivered_at.is_some(), "{outcome:?} {claim:?}");
}
