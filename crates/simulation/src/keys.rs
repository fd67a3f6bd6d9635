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
    retry::own,
    time::Timestamp,
    token::MIN_LEFT,
};

use crate::world::ReceivedToken;

/// When each failed claim ended, and from when the token of each served claim could no longer be used.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    ended: BTreeMap<ClaimId, Timestamp>,
    useless: BTreeMap<ClaimId, Timestamp>,
}

impl Failures {
    /// Returns why the entry breaks the rule, if it does.
    pub fn add(&mut self, entry: &Entry, window: Duration) -> Option<String> {
        let claim = entry.claim?;
        match &entry.event {
            Event::Allotted { usable_until, .. } => {
                self.useless.insert(claim, usable_until.minus(MIN_LEFT));
                None
            }
            Event::Ended { state: ClaimState::Failed | ClaimState::Lapsed, code } => {
                let has_expired =
                    code.as_ref().is_some_and(|code| code.as_str() == own::TOKEN_EXPIRED);
                // The window begins when the token expires, and not when somebody notices.
                let useless = self.useless.remove(&claim).filter(|_| has_expired);
                self.ended.insert(claim, useless.unwrap_or(entry.at).min(entry.at));
                None
            }
            Event::Reopened { .. } => {
                let ended = self.ended.remove(&claim)?;
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
