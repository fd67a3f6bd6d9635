//! Complete ledgers and histories of a store, for tests that judge a whole run.

use std::collections::BTreeMap;

use domain::{
    claim::Claim,
    id::{ClaimId, SolveId, TaskId},
    ledger::{Entry, Event},
    ports::{ClaimFilter, Records, Scope},
};

pub(crate) async fn all_claims(records: &dyn Records) -> BTreeMap<ClaimId, Claim> {
    let mut filter = ClaimFilter::all(Scope::All, 1_000);
    let mut all = BTreeMap::new();
    loop {
        let page = records.history(filter.clone()).await.unwrap();
        all.extend(page.items.into_iter().map(|claim| (claim.id, claim)));
        filter.from = page.next;
        if filter.from.is_none() {
            return all;
        }
    }
}

/// The entries that allot each token, by the solve and the task that paid for it.
pub(crate) fn allotments(entries: &[Entry]) -> BTreeMap<(SolveId, &TaskId), Vec<&Entry>> {
    let mut all: BTreeMap<(SolveId, &TaskId), Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        if let Event::Allotted { paid_by, task, .. } = &entry.event {
            all.entry((*paid_by, task)).or_default().push(entry);
        }
    }
    all
}
