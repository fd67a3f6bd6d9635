//! How long things will take, from what solves took lately. For callers, and to let go early of what cannot be answered in
//! time; nothing is ever paid because of an estimate.

use std::time::Duration;

use domain::{challenge::Kind, claim::Claim, id::WorkerName, time::Timestamp};

use crate::{Inner, fair::LaneName};

const LEAST: Duration = Duration::from_secs(1);

impl Inner {
    /// When the claim's answer can be expected, from now.
    pub(crate) fn eta(&self, claim: &Claim, now: Timestamp) -> Duration {
        let usual = self.health.usual_solve(&claim.kind);
        let sent = claim.solve.and_then(|solve| {
            self.sent().get(&solve).filter(|sent| sent.next.is_some()).map(|sent| sent.at)
        });
        if let Some(sent_at) = sent {
            return usual.saturating_sub(now.since(sent_at)).max(LEAST);
        }
        let (lane, opened_at) = self.place(claim, now);
        let (ahead, share) = self.queue().ahead(&lane, opened_at);
        let limit = u64::try_from(self.places.limit().max(1)).unwrap_or(1);
        // Solves before it, each taking its time, on the worker's share of the slots.
        let rounds = u64::try_from(ahead).unwrap_or(u64::MAX).saturating_mul(1000);
        let rounds = rounds / (limit * share.max(1)).max(1);
        let queued = usual.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        let most = claim.deadline.since(now).max(LEAST);
        usual.saturating_add(queued).clamp(LEAST, most)
    }

    /// In which lane it waits, and since when. What was brought back is in a lane of its own until somebody wants it now:
    /// then it waits anew in its worker's.
    fn place(&self, claim: &Claim, now: Timestamp) -> (LaneName, Timestamp) {
        let own = LaneName::Worker(claim.worker.clone());
        if claim.revives.is_none() {
            return (own, claim.opened_at);
        }
        let found = claim.solve.and_then(|solve| self.queue().place(solve));
        found.unwrap_or((own, now))
    }

    /// The earliest moment a solve of the kind submitted now has ever been answered lately. While the account is in
    /// trouble nothing is known.
    pub(crate) fn soonest(&self, kind: &Kind, now: Timestamp) -> Timestamp {
        if self.breakers.account.is_open() {
            return now;
        }
        now.plus(self.health.fastest_solve(kind).unwrap_or_default())
    }

    /// The earliest moment a solve of the kind opened now can be answered: as many rounds as the worker's own queue is
    /// long, were all slots its own.
    pub(crate) fn soonest_new(
        &self,
        kind: &Kind,
        worker: &WorkerName,
        now: Timestamp,
    ) -> Timestamp {
        if self.breakers.account.is_open() {
            return now;
        }
        let Some(fastest) = self.health.fastest_solve(kind) else { return now };
        let (ahead, _) = self.queue().ahead(&LaneName::Worker(worker.clone()), now);
        // What waits before it may be of quicker kinds.
        let rounds = u32::try_from(ahead / self.places.limit().max(1)).unwrap_or(u32::MAX);
        let before = self.health.fastest_of_all().min(fastest).saturating_mul(rounds);
        now.plus(before.saturating_add(fastest))
    }
}
