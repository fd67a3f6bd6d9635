//! What the tasks file needs of the behaviour: the tasks that changed, and taking up those of another process. Used by
//! `journal`.

use domain::money::Money;

use super::{Behaviour, FIRST_TASK, TaskRecord, negative};

// === impl Behaviour ===

impl Behaviour {
    /// Notes from now on which tasks change.
    pub(crate) fn note_changes(&mut self) {
        self.changed.get_or_insert_default();
    }

    pub(super) fn has_changed(&mut self, number: u64) {
        if let Some(changed) = &mut self.changed {
            changed.insert(number);
        }
    }

    /// The tasks that changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<TaskRecord> {
        let changed = self.changed.as_mut().map(std::mem::take).unwrap_or_default();
        changed.iter().filter_map(|number| self.tasks.get(number)).cloned().collect()
    }

    /// Takes a task, or a change of one, from the file. Ids rise in the file, so an unknown one that is not above the last
    /// was forgotten.
    pub(crate) fn restore(&mut self, task: TaskRecord) {
        let known = self.tasks.get(&task.number);
        if known.is_none() && task.number <= self.last {
            return;
        }
        let paid_before = known.map_or(Money::ZERO, TaskRecord::paid);
        if let Some(known) = known {
            self.at_work.remove(&(known.done_at, known.number));
        }
        self.balance = self.balance + paid_before + negative(task.paid());
        self.last = self.last.max(task.number);
        self.at_work.insert((task.done_at, task.number));
        self.tasks.insert(task.number, task);
    }

    /// Takes the cost of forgotten tasks from the file, unless it is known already.
    pub(crate) fn spent_before(&mut self, spent: Money) {
        if self.last == FIRST_TASK {
            self.balance = self.config.balance + negative(spent);
        }
    }

    /// The cost of all forgotten tasks, and the others.
    pub(crate) fn records(&self) -> (Money, Vec<TaskRecord>) {
        let paid = self.tasks.values().map(TaskRecord::paid).sum();
        let spent = self.config.balance + negative(self.balance);
        (spent + negative(paid), self.tasks.values().cloned().collect())
    }
}

// === impl TaskRecord ===

impl TaskRecord {
    fn paid(&self) -> Money {
        if self.is_refunded { Money::ZERO } else { self.cost }
    }
}
