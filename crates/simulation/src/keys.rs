//! Checks the keys of workers against the ledger (I30): a failure is replayed for its window, and work that may have been paid
//! is not opened again under its key.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{
    claim::{Claim, ClaimState},
    fingerprint::KeyHash,
    id::{ClaimId, WorkerName},
    ledger::{Entry, Event},
    time::Timestamp,
};

use crate::world::ReceivedToken;

/// When each failed claim ended.
#[derive(Clone, Debug, Default)]
pub struct Failures(BTreeMap<ClaimId, Timestamp>);

impl Failures {
    /// Returns why the entry breaks the rule, if it does.
    pub fn add(&mut self, entry: &Entry, window: Duration) -> Option<String> {
        let claim = entry.claim?;
        match &entry.event {
            Event::Ended { state: ClaimState::Failed | ClaimState::Lapsed, .. } => {
                self.0.insert(claim, entry.at);
                None
            }
            Event::Reopened { .. } => {
                let ended = self.0.remove(&claim)?;
                let early = entry.at < ended.plus(window);
                early.then(|| {
                    let after = entry.at.since(ended);
                    format!("I30: claim {claim} is opened again {after:?} after its failure")
                })
            }
            _ => None,
        }
    }
}

/// Work that may have been paid brings no token under its key. Paying again needs another key, or somebody who revives it.
pub fn paid_again(claims: &[Claim], got: &[ReceivedToken]) -> Vec<String> {
    let keys: BTreeSet<KeyHash> = got.iter().filter_map(|got| key_of(&got.work)).collect();
    let with_key = |key| claims.iter().filter(move |claim| claim.key == Some(key));
    let is_lost = |key| {
        let mut all = with_key(key);
        matches!((all.next(), all.next()), (Some(only), None) if only.may_have_paid)
    };
    let broken = keys.into_iter().filter(|key| is_lost(*key)).flat_map(with_key);
    broken
        .map(|claim| format!("I30: claim {} may have been paid, and its key was served", claim.id))
        .collect()
}

/// The key of a piece of work that has one.
fn key_of(work: &str) -> Option<KeyHash> {
    let (worker, key) = work.split_once('/')?;
    KeyHash::named(&WorkerName::new(worker).ok()?, key).ok()
}
