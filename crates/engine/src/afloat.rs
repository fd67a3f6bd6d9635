//! Tasks that are asked for together, where the provider answers for several in one call. One call asks for all that are
//! worth asking for, at the moment the lag that has piled up is worth a call (polling/batch.rs).

use std::{collections::BTreeMap, time::Duration};

use domain::{id::SolveId, lease::Lease, time::Timestamp};

use crate::{
    Inner,
    held::{Held, Lot},
    polling::{
        Family,
        batch::{BatchRule, BatchTask},
    },
};

/// Tasks that wait for the next call.
#[derive(Debug, Default)]
pub(crate) struct Afloat {
    tasks: BTreeMap<SolveId, Box<Held>>,
    last_call: Option<Timestamp>,
    /// When the next call is due; `None` when it has to be thought about again.
    next: Option<Timestamp>,
}

/// A task for stock is worth a tenth of one somebody waits for.
const FOR_STOCK: f64 = 0.1;
/// So many calls go out at one moment: the rest of a crowd is asked for at the next.
const MOST_CALLS: usize = 100;

impl Afloat {
    pub(crate) fn insert(&mut self, held: Box<Held>) {
        self.next = None;
        self.tasks.insert(held.lease.solve.id, held);
    }

    pub(crate) fn remove(&mut self, id: SolveId) -> Option<Box<Held>> {
        self.tasks.remove(&id)
    }

    /// Takes all of them out.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Box<Held>> {
        std::mem::take(&mut self.tasks).into_values()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Held> {
        self.tasks.values().map(AsRef::as_ref)
    }

    /// When the next call is due.
    pub(crate) fn next_call(&mut self, inner: &Inner, now: Timestamp) -> Option<Timestamp> {
        if self.tasks.is_empty() {
            return None;
        }
        if self.next.is_none() {
            let (tasks, families) = self.seen(now);
            let since = self.last_call.map_or(Duration::MAX, |at| now.since(at));
            let chance = chance(inner, &tasks, &families);
            self.next = Some(now.plus(BatchRule::default().next_call(&tasks, since, chance)));
        }
        self.next
    }

    /// Takes out what is to be asked for now, one lot per call.
    pub(crate) fn due(&mut self, inner: &Inner, now: Timestamp) -> Vec<Lot> {
        if self.next_call(inner, now).is_none_or(|at| now < at) {
            return Vec::new();
        }
        let (tasks, families) = self.seen(now);
        let rule = BatchRule::default();
        let all = BatchRule { most_ids: rule.most_ids * MOST_CALLS, ..rule };
        let chosen = all.choose(&tasks, chance(inner, &tasks, &families));
        let ids: Vec<SolveId> = self.tasks.keys().copied().collect();
        let ripe = |id: &SolveId| self.tasks.get(id).is_some_and(|held| held.not_before <= now);
        let chosen: Vec<SolveId> = chosen.into_iter().map(|i| ids[i]).filter(ripe).collect();
        self.next = None;
        if chosen.is_empty() {
            // Nobody may be asked for yet: think again in a moment.
            self.next = Some(now.plus(rule.min_gap));
            return Vec::new();
        }
        self.last_call = Some(now);
        let lots = chosen.chunks(rule.most_ids);
        lots.map(|lot| lot.iter().filter_map(|id| self.tasks.remove(id)).collect()).collect()
    }

    fn seen(&self, now: Timestamp) -> (Vec<BatchTask>, Vec<Family>) {
        let seen = self.tasks.values().map(|held| (held.batch_task(now), held.family()));
        seen.unzip()
    }
}

fn chance<'a>(
    inner: &'a Inner,
    tasks: &'a [BatchTask],
    families: &'a [Family],
) -> impl Fn(usize, Duration) -> f64 + 'a {
    move |i, age| inner.config.polling.chance_ready(&families[i], tasks[i].asked, age)
}

/// What a task is learned with.
pub(crate) fn family_of(lease: &Lease) -> Family {
    let proxied = lease.challenge.params().contains_key("proxy");
    Family { kind: lease.solve.kind.clone(), proxied }
}

impl Held {
    /// What its task is learned with.
    pub(crate) fn family(&self) -> Family {
        family_of(&self.lease)
    }

    fn batch_task(&self, now: Timestamp) -> BatchTask {
        let solve = &self.lease.solve;
        let sent = solve.accepted_at.unwrap_or(solve.opened_at);
        let waiting = u32::try_from(solve.claims.len()).unwrap_or(u32::MAX);
        BatchTask {
            asked: self.not_ready.map_or(Duration::ZERO, |at| at.since(sent)),
            age: now.since(sent),
            weight: if waiting == 0 { FOR_STOCK } else { f64::from(waiting) },
            from: self.worth_asking_from,
        }
    }
}
