//! Totals over our ledger, kept up to date entry by entry.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    id::{Nonce, SolveId, TaskId},
    ledger::{Entry, Event},
};

#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// How many intents carry each nonce.
    pub intents: BTreeMap<Nonce, usize>,
    /// Tasks that are in the ledger.
    pub known: BTreeSet<TaskId>,
    /// Tasks that the provider could not solve, according to the ledger.
    pub over: BTreeSet<TaskId>,
    pub solves: usize,
    pub ended_tasks: usize,
    pub authorised: usize,
    pub ambiguous: usize,
    tasks: BTreeMap<(SolveId, u32), TaskId>,
}

impl Totals {
    /// The maximum number of tasks that may have been paid: one for each solve, one more for each task that ended and
    /// for each authorised resubmission.
    pub fn explained_tasks(&self) -> usize {
        self.solves + self.ended_tasks + self.authorised
    }

    pub fn add(&mut self, entry: &Entry) {
        match &entry.event {
            Event::Opened { .. } | Event::Ordered { .. } => self.solves += 1,
            Event::Intent { nonce, .. } => *self.intents.entry(*nonce).or_default() += 1,
            Event::Accepted { task, attempt } => {
                self.known.insert(task.clone());
                self.tasks.insert((entry.solve.unwrap(), *attempt), task.clone());
            }
            Event::Orphaned { task, .. } => drop(self.known.insert(task.clone())),
            Event::TaskOver { attempt, code, .. } => {
                self.ended_tasks += 1;
                let task = self.tasks.get(&(entry.solve.unwrap(), *attempt));
                if code.as_str() == "ERROR_CAPTCHA_UNSOLVABLE" {
                    self.over.extend(task.cloned());
                }
            }
            Event::Authorised { .. } => self.authorised += 1,
            Event::Ambiguous { .. } => self.ambiguous += 1,
            _ => {}
        }
    }
}
