//! Replays the ledger under other settings.

use std::collections::BTreeMap;

use domain::{
    id::ClaimId,
    ports::{Scope, StoreError, TotalsFilter},
    time::Day,
    what_if::{ClaimFacts, Replay, Settings, WhatIf},
};

use crate::{Engine, Shared, reconcile::first_entry_since};

/// Entries that one call to the store reads.
const PAGE: usize = 1000;

impl Engine {
    /// What the claims from the first day to now would have cost.
    pub async fn what_if(&self, first: Day, settings: Settings) -> Result<WhatIf, StoreError> {
        let shared = &*self.0;
        let now = shared.now();
        let mut replay = Replay::new(settings, shared.config.reuse_window);
        let mut next = first_entry_since(shared, first.start()).await?;
        loop {
            let entries = shared.ports.records.entries(next, PAGE).await?;
            let Some(last) = entries.last() else { break };
            next = last.seq + 1;
            let needed = entries.iter().filter_map(|entry| replay.needs(entry));
            let facts = facts(shared, needed.collect()).await?;
            for entry in entries.iter().filter(|entry| entry.at >= first.start()) {
                let of_claim = entry.claim.and_then(|claim| facts.get(&claim));
                replay.add(entry, of_claim);
            }
            if entries.last().is_some_and(|last| last.at > now) {
                break;
            }
        }
        let mut found = replay.finish();
        let asked = TotalsFilter { scope: Scope::All, from: first, to: now.day() };
        let totals = shared.ports.records.totals(asked).await?;
        found.actual.polls = totals.iter().map(|total| total.counts.polls).sum();
        Ok(found)
    }
}

async fn facts(
    shared: &Shared,
    claims: Vec<ClaimId>,
) -> Result<BTreeMap<ClaimId, ClaimFacts>, StoreError> {
    let mut facts = BTreeMap::new();
    for id in claims {
        let mut claim = shared.ports.store.find_claim(id).await?;
        if let (None, Some(archive)) = (&claim, &shared.config.archive) {
            claim = archive.archived_claim(id).await?;
        }
        if let Some(claim) = claim {
            let repeats = shared.ports.store.repeats(id).await?.replayed;
            facts.insert(id, ClaimFacts::of(&claim, repeats));
        }
    }
    Ok(facts)
}
