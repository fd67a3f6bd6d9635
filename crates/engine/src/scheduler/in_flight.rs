//! The tasks this process has at the provider. It remembers them even while it leases everything again, so that no task
//! is polled by two hands or more often than its minimum gap allows.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{id::SolveId, lease::Fence, time::Timestamp};
use parking_lot::Mutex;

use super::active::ActiveSolve;

#[derive(Debug, Default)]
pub(crate) struct InFlightTasks(Mutex<BTreeMap<SolveId, InFlight>>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) sent_at: Timestamp,
    /// The last poll, and how many there were.
    pub(crate) polled: Option<(Timestamp, u32)>,
    /// When the driver takes it up next; `None` when the driver does not have it.
    pub(crate) next: Option<Timestamp>,
    /// The newest lease this process had of it.
    pub(crate) fence: Fence,
}

/// Polled tasks that the driver has released are remembered for this long.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Released tasks are forgotten only when more than this many have gathered.
const MAX_RELEASED: usize = 100;

impl InFlightTasks {
    pub(crate) fn get(&self, id: SolveId) -> Option<InFlight> {
        self.0.lock().get(&id).copied()
    }

    /// The task, if the driver has it.
    pub(crate) fn driven(&self, id: SolveId) -> Option<InFlight> {
        self.get(id).filter(|task| task.next.is_some())
    }

    /// The task is being polled, whatever becomes of the call.
    pub(crate) fn record_poll(&self, active: &ActiveSolve, at: Timestamp) {
        if let Some(task) = self.0.lock().get_mut(&active.lease.solve.id) {
            task.polled = Some((at, active.polls + 1));
        }
    }

    pub(super) fn reschedule(&self, id: SolveId, at: Timestamp) {
        if let Some(task) = self.0.lock().get_mut(&id) {
            task.next = Some(at);
        }
    }

    /// Records that the driver takes up a task under this lease. An older lease of the same task is refused with `Err`;
    /// if the task was scheduled under an older lease, that time is returned, so that the caller drops the older copy.
    pub(super) fn schedule(&self, id: SolveId, new: InFlight) -> Result<Option<Timestamp>, ()> {
        let mut tasks = self.0.lock();
        let task = tasks.entry(id).or_insert(InFlight { next: None, polled: None, ..new });
        if task.fence > new.fence {
            return Err(());
        }
        let older = task.next.filter(|_| task.fence < new.fence);
        *task = InFlight { polled: task.polled, ..new };
        Ok(older)
    }

    /// The driver no longer has the task. If it comes back in a moment, its last poll is still known.
    pub(super) fn release(&self, id: SolveId, scheduled: usize, now: Timestamp) {
        let mut tasks = self.0.lock();
        if let Some(task) = tasks.get_mut(&id) {
            task.next = None;
        }
        let recent =
            |task: &InFlight| task.polled.is_some_and(|(at, _)| now.since(at) < REMEMBERED);
        if tasks.len() > 2 * scheduled + MAX_RELEASED {
            tasks.retain(|_, task| task.next.is_some() || recent(task));
        }
    }

    pub(super) fn release_all(&self) {
        for task in self.0.lock().values_mut() {
            task.next = None;
        }
    }

    pub(super) fn retain(&self, ids: &BTreeSet<SolveId>) {
        self.0.lock().retain(|id, _| ids.contains(id));
    }
}
