//! I18: a retry waits within its backoff, `Retry-After` is a floor, and no attempt begins before its time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{
    id::SolveId,
    ledger::{Entry, Event},
    retry::RetryTable,
    time::Timestamp,
};

use crate::{ports::Retry, world::Traces};

/// The upper limit of a `Retry-After`.
const LONGEST_FLOOR: Duration = Duration::from_secs(3600);

/// Violations of the retry rules.
pub(super) fn retries(traces: &Traces, entries: &[Entry], table: &RetryTable) -> Vec<String> {
    let mut broken = Vec::new();
    let mut due: BTreeMap<(SolveId, u32), Timestamp> = BTreeMap::new();
    for life in &traces.lives {
        let asked = life.asked.lock().unwrap();
        for retry in life.retries.lock().unwrap().iter() {
            let name = (retry.solve, retry.attempt);
            if let Some(due) = due.get_mut(&name) {
                // The gateway settled again because the store was unreachable, or another gateway knows better.
                *due = retry.due.min(*due);
                continue;
            }
            let floor = asked.get(&name).copied().unwrap_or_default().min(LONGEST_FLOOR);
            broken.extend(out_of_bounds(retry, floor, table));
            due.insert(name, retry.due);
        }
    }
    broken.extend(too_early(entries, &due));
    broken
}

/// A fact about an attempt that had already been replaced delays nothing.
fn too_early(entries: &[Entry], due: &BTreeMap<(SolveId, u32), Timestamp>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut delivered_callbacks = BTreeSet::new();
    for entry in entries {
        let Some(solve) = entry.solve else { continue };
        match entry.event {
            Event::NotAccepted { attempt, .. } | Event::TaskOver { attempt, .. } => {
                delivered_callbacks.insert((solve, attempt));
            }
            Event::Intent { attempt, .. } => {
                let before = (solve, attempt.saturating_sub(1));
                let due = due.get(&before).filter(|due| entry.at < **due);
                if let Some(due) = due.filter(|_| delivered_callbacks.contains(&before)) {
                    broken.push(format!("I18: {solve} went again at {}, due {due}", entry.at));
                }
            }
            _ => {}
        }
    }
    broken
}

fn out_of_bounds(retry: &Retry, floor: Duration, table: &RetryTable) -> Option<String> {
    let backoff = table.backoff();
    // A code occurred at most as many times as there were attempts before this one.
    let grown = backoff.base.saturating_mul(2u32.saturating_pow((retry.attempt - 1).min(20)));
    let longest = grown.min(backoff.cap).max(floor).max(table.rule(&retry.code).floor);
    let wait = retry.due.since(retry.at);
    (wait < floor || wait > longest).then(|| {
        let Retry { solve, attempt, code, .. } = retry;
        format!(
            "I18: {solve} waits {wait:?} after attempt {attempt}, {code}: {floor:?} to {longest:?}"
        )
    })
}
