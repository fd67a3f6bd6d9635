//! Estimates how long an answer will take, from what recent solves took. For callers, and to give up early on solves that
//! cannot be answered in time. No estimate ever causes a payment.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use domain::{challenge::Kind, claim::Claim, id::WorkerName, time::Timestamp};
use parking_lot::Mutex;

use super::{Scheduler, fair_queue::LaneName};

/// How long recent solves took, by kind.
#[derive(Debug, Default)]
pub(crate) struct SolveTimes(Mutex<BTreeMap<Kind, VecDeque<Duration>>>);

const REMEMBERED: usize = 64;
/// Fewer solves than this are no proof that nothing is faster.
const ENOUGH: usize = 20;
/// Callers may invent kinds, so only this many are remembered.
const MAX_KINDS: usize = 256;
/// Assumed for a kind that was never solved.
const UNKNOWN: Duration = Duration::from_secs(5);
const MIN_ETA: Duration = Duration::from_secs(1);

/// How long from now until the claim's answer can be expected.
pub(crate) fn eta(scheduler: &Scheduler, claim: &Claim, now: Timestamp) -> Duration {
    let usual = scheduler.solve_times.usual(&claim.kind);
    if let Some(task) = claim.solve.and_then(|solve| scheduler.in_flight.driven(solve)) {
        return usual.saturating_sub(now.since(task.sent_at)).max(MIN_ETA);
    }
    let (lane, opened_at) = queue_position(scheduler, claim, now);
    let (ahead, share) = scheduler.queue.lock().ahead(&lane, opened_at);
    let limit = u64::try_from(scheduler.slots.available().max(1)).unwrap_or(1);
    // The solves before it take their time one after the other on the worker's share of the slots.
    let rounds = u64::try_from(ahead).unwrap_or(u64::MAX).saturating_mul(1000);
    let rounds = rounds / (limit * share.max(1)).max(1);
    let queued = usual.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
    let longest = claim.deadline.since(now).max(MIN_ETA);
    usual.saturating_add(queued).clamp(MIN_ETA, longest)
}

/// The lane a claim waits in, and since when. Revived work has a lane of its own until a live claim wants it; from then on
/// it waits in its worker's lane.
fn queue_position(scheduler: &Scheduler, claim: &Claim, now: Timestamp) -> (LaneName, Timestamp) {
    let own = LaneName::Worker(claim.worker.clone());
    if claim.revives.is_none() {
        return (own, claim.opened_at);
    }
    let found = claim.solve.and_then(|solve| scheduler.queue.lock().position(solve));
    found.unwrap_or((own, now))
}

/// The earliest moment at which a solve of the kind submitted now can be answered, going by recent solves. While the
/// account's circuit breaker is open nothing is known.
pub(crate) fn soonest_answer(scheduler: &Scheduler, kind: &Kind, now: Timestamp) -> Timestamp {
    if scheduler.breakers.account.is_open() {
        return now;
    }
    now.plus(scheduler.solve_times.fastest(kind).unwrap_or_default())
}

/// The same for a solve that is opened now: the worker's own queue goes first, as if all slots were the worker's, also those
/// that other gateways have. Shares move within seconds, and a gateway that joins or leases everything again has none.
pub(crate) fn soonest_answer_if_opened(
    scheduler: &Scheduler,
    kind: &Kind,
    worker: &WorkerName,
    now: Timestamp,
) -> Timestamp {
    if scheduler.breakers.account.is_open() {
        return now;
    }
    let Some(fastest) = scheduler.solve_times.fastest(kind) else { return now };
    let ahead = scheduler.queue.lock().ahead_of_next(&LaneName::Worker(worker.clone()));
    // The solves before it may be of faster kinds.
    let rounds = u32::try_from(ahead / scheduler.slots.limit().max(1)).unwrap_or(u32::MAX);
    let before = scheduler.solve_times.fastest_of_all().min(fastest).saturating_mul(rounds);
    now.plus(before.saturating_add(fastest))
}

// === impl SolveTimes ===

impl SolveTimes {
    pub(crate) fn record(&self, kind: &Kind, length: Duration) {
        let mut kinds = self.0.lock();
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(kind) {
            return;
        }
        let recent = kinds.entry(kind.clone()).or_default();
        recent.push_back(length);
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }

    /// The mean of recent solves.
    pub(crate) fn usual(&self, kind: &Kind) -> Duration {
        let kinds = self.0.lock();
        let Some(recent) = kinds.get(kind).filter(|recent| !recent.is_empty()) else {
            return UNKNOWN;
        };
        recent.iter().sum::<Duration>() / u32::try_from(recent.len()).unwrap_or(u32::MAX)
    }

    /// The fastest recent solve of the kind, once there were enough of them.
    pub(crate) fn fastest(&self, kind: &Kind) -> Option<Duration> {
        let kinds = self.0.lock();
        kinds.get(kind).filter(|recent| recent.len() >= ENOUGH)?.iter().min().copied()
    }

    pub(crate) fn fastest_of_all(&self) -> Duration {
        self.0.lock().values().flatten().min().copied().unwrap_or_default()
    }
}
