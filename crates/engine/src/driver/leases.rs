//! What the store gave us, and giving it back.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    id::SolveId,
    lease::Lease,
    ports::{LeaseAsk, StoreError},
    time::Timestamp,
};

use crate::{Inner, held::Held, keeper};

use super::{Driver, LEASE_LIMIT};

/// Gives up the process's lease; `false` when others have to wait for its end.
pub(super) async fn release(inner: &Inner) -> bool {
    let released = inner.ports.store.release(inner.holder(), inner.now()).await;
    if let Err(error) = &released {
        tracing::error!(%error, "failed to release the gateway's lease, others wait until it expires");
    }
    released.is_ok()
}

/// Leases what is due, or the one that is wanted. An unsure process gives everything back first, all but the submissions
/// under way.
pub(super) async fn lease(
    inner: &Inner,
    only: Option<SolveId>,
    afresh: bool,
) -> Result<Vec<Lease>, StoreError> {
    if afresh {
        inner.ports.store.release(inner.holder(), inner.now()).await?;
        keeper::renew(inner).await?;
    }
    let ask = LeaseAsk { only, ..LeaseAsk::any(inner.holder(), LEASE_LIMIT) };
    inner.ports.store.lease(ask, inner.now()).await
}

impl Driver {
    pub(super) fn take_leases(&mut self, result: Result<Vec<Lease>, StoreError>, afresh: bool) {
        self.leasing = false;
        let mut meanwhile = self.meanwhile.take().unwrap_or_default();
        let leases = match result {
            Ok(leases) => leases,
            Err(error) => {
                tracing::error!(%error, "failed to lease due solves");
                self.unsure = true;
                return;
            }
        };
        if afresh {
            meanwhile.retain(|id| leases.iter().all(|lease| lease.solve.id != *id));
            self.forget(&meanwhile);
        }
        let knew_all = std::mem::replace(&mut self.knows_all, leases.len() < LEASE_LIMIT);
        if self.knows_all && !knew_all {
            // What an earlier life sent is ours again: it was counted as others' so far.
            self.inner.ask_threads.notify_one();
        }
        if leases.len() == LEASE_LIMIT {
            self.lease_at = self.inner.now();
        } else if afresh {
            let ours = |id: &SolveId| {
                meanwhile.contains(id) || leases.iter().any(|lease| lease.solve.id == *id)
            };
            self.inner.sent().retain(|id, _| ours(id));
        }
        self.tally.leased += leases.len();
        for lease in leases {
            let (at, polls) = self.first_look(&lease);
            self.keep(at, Box::new(Held::new(lease, polls)));
        }
    }

    /// When a leased solve is looked at, and how often its task was asked for. A task that we ourselves asked for
    /// just now, before we had to lease it afresh, is not asked for again before its time.
    fn first_look(&self, lease: &Lease) -> (Timestamp, u32) {
        let (now, solve) = (self.inner.now(), &lease.solve);
        if solve.task.is_none() {
            return (solve.due, 0);
        }
        let polling = &self.inner.config.polling;
        let polled = self.inner.sent().get(&solve.id).and_then(|sent| sent.polled);
        if let Some((at, polls)) = polled {
            return (now.max(at.plus(polling.min_gap())), polls);
        }
        let polls = Held::polls_until_now(&self.inner, lease);
        self.inner.quota.earn(polling.most().saturating_sub(polls));
        (now, polls)
    }

    /// Everything was given back and what is still ours has just been leased afresh; all but what was being submitted.
    pub(super) fn forget(&mut self, kept: &BTreeSet<SolveId>) {
        self.epoch += 1;
        let is_gone = |held: &Held| !kept.contains(&held.lease.solve.id);
        self.inner.queue().remove_where(|held| is_gone(held));
        let agenda = std::mem::take(&mut self.agenda);
        let (gone, stays) = agenda.into_iter().partition(|(_, held)| is_gone(held));
        self.agenda = stays;
        let (afloat, stays): (Vec<_>, Vec<_>) =
            self.afloat.take_all().partition(|held| is_gone(held));
        for held in stays {
            self.afloat.insert(&self.inner, held);
        }
        for held in BTreeMap::into_values(gone).chain(afloat) {
            if held.slot {
                self.inner.places.give_back();
            }
            self.end_turn(held.turn);
        }
    }
}
