//! The provider's account, shared by both fronts: behaviour, fault plan, and two optional files: one with every accepted task,
//! for people, and one from which a restart takes the tasks up again. It has one lock, which is never held across an await.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    sync::Arc,
};

use domain::{challenge::Challenge, id::Nonce, retry::Code, time::Timestamp};
use parking_lot::Mutex;

use crate::{
    behaviour::{Behaviour, Fate, PollEffect, SubmitEffect},
    config::BehaviourConfig,
    faults::{Call, Fault, FaultPlan, Planned},
    journal::Journal,
    ledger::{Accepted, Ledger},
};

/// A handle on the account; clones share it.
#[derive(Clone, Debug)]
pub struct Account(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    behaviour: Behaviour,
    faults: FaultPlan,
    file: Option<File>,
    journal: Option<Journal>,
}

// === impl Account ===

impl Account {
    /// An account without tasks and without faults.
    pub fn new(config: BehaviourConfig) -> Self {
        // Not the behaviour's random stream, so that planning a fault does not change solve times.
        let faults = FaultPlan::new(config.seed ^ 0x5EED_FA17);
        let inner = Inner { behaviour: Behaviour::new(config), faults, file: None, journal: None };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Appends every accepted task to this file, as a JSON line, before it is answered.
    pub fn keep_in(&self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        self.0.lock().file = Some(file);
        Ok(())
    }

    /// Keeps the tasks in this file, and goes on with those that are in it.
    pub fn restore_from(&self, path: &Path) -> io::Result<()> {
        let inner = &mut *self.0.lock();
        inner.behaviour.note_changes();
        inner.journal = Some(Journal::open(path, &mut inner.behaviour)?);
        Ok(())
    }

    /// Reads or changes the behaviour.
    pub fn with<T>(&self, access: impl FnOnce(&mut Behaviour) -> T) -> T {
        self.0.lock().saving(|inner| access(&mut inner.behaviour))
    }

    /// Reads or changes the fault plan.
    pub fn faults<T>(&self, change: impl FnOnce(&mut FaultPlan) -> T) -> T {
        change(&mut self.0.lock().faults)
    }

    pub fn plan(&self, planned: Planned) {
        self.faults(|plan| plan.add(planned));
    }

    pub fn ledger(&self) -> Ledger {
        self.with(|behaviour| behaviour.ledger.clone())
    }

    pub fn received_submits(&self) -> u64 {
        self.with(|behaviour| behaviour.ledger.received_submits)
    }

    pub(crate) fn draw(&self, call: Call) -> Option<Planned> {
        self.faults(|plan| plan.draw(call))
    }

    /// Processes a submission as far as its fault allows; `None` if it is lost.
    pub(crate) fn submit(
        &self,
        challenge: &Challenge,
        nonce: Option<Nonce>,
        struck: Option<&Planned>,
        now: Timestamp,
    ) -> Option<SubmitEffect> {
        self.0.lock().saving(|inner| inner.submit(challenge, nonce, struck, now))
    }

    /// Counts a request other than a submission; returns the code of a ban.
    pub(crate) fn banned(&self, now: Timestamp) -> Option<Code> {
        self.with(|behaviour| behaviour.fetch(now))
    }

    /// Answers a poll as far as its fault allows; `None` if it is lost.
    pub(crate) fn poll(
        &self,
        id: &str,
        struck: Option<&Planned>,
        now: Timestamp,
    ) -> Option<PollEffect> {
        self.0.lock().saving(|inner| {
            let effect = inner.poll(id, struck, now)?;
            inner.behaviour.ledger.poll_calls += 1;
            Some(effect)
        })
    }

    /// Answers a batch poll as far as its fault allows; `None` if it is lost.
    pub(crate) fn poll_many<'a>(
        &self,
        ids: impl Iterator<Item = &'a str>,
        struck: Option<&Planned>,
        now: Timestamp,
    ) -> Option<Result<Vec<PollEffect>, Code>> {
        self.0.lock().saving(|inner| {
            if !inner.behaviour.config.batch {
                return Some(Err(wire::code::ERROR_WRONG_ID_FORMAT.into()));
            }
            let effects: Option<Vec<_>> = ids.map(|id| inner.poll(id, struck, now)).collect();
            let effects = effects?;
            inner.behaviour.ledger.poll_calls += 1;
            Some(Ok(effects))
        })
    }
}

// === impl Inner ===

impl Inner {
    /// Runs one call. The tasks it changes are saved before anybody hears of them.
    fn saving<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.with_journal(Journal::begin);
        let result = call(self);
        self.with_journal(Journal::end);
        result
    }

    /// Without its file the simulator goes on in memory.
    fn with_journal(&mut self, step: fn(&mut Journal, &mut Behaviour) -> io::Result<()>) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(error) = step(journal, &mut self.behaviour) {
            tracing::error!(%error, "failed to use the tasks file, a restart will forget later tasks");
            self.journal = None;
        }
    }

    fn submit(
        &mut self,
        challenge: &Challenge,
        nonce: Option<Nonce>,
        struck: Option<&Planned>,
        now: Timestamp,
    ) -> Option<SubmitEffect> {
        let Self { behaviour, file, .. } = self;
        let last = behaviour.ledger.accepted.last().cloned();
        let fate = match (struck.map(|struck| &struck.fault), last) {
            (Some(Fault::Code(code)), _) => {
                return Some(behaviour.refuse_unseen(code.clone(), now));
            }
            (Some(Fault::SameTask), Some(last)) => {
                behaviour.ledger.received_submits += 1;
                return Some(SubmitEffect::Accepted(last));
            }
            (Some(Fault::Unsolvable), _) => Fate::Unsolvable,
            (Some(Fault::NeverReady), _) => Fate::NeverReady,
            (Some(Fault::SameTask), None) => Fate::Solved,
            _ if struck.is_some_and(|struck| !struck.is_processed()) => {
                behaviour.ledger.received_submits += 1;
                return None;
            }
            _ => Fate::Solved,
        };
        let effect = behaviour.submit(challenge, nonce, fate, now);
        if let (SubmitEffect::Accepted(accepted), Some(file)) = (&effect, file) {
            append(file, accepted);
        }
        Some(effect)
    }

    fn poll(&mut self, id: &str, struck: Option<&Planned>, now: Timestamp) -> Option<PollEffect> {
        let behaviour = &mut self.behaviour;
        match struck.map(|struck| &struck.fault) {
            Some(Fault::Code(code)) => return Some(PollEffect::Refused(code.clone())),
            Some(Fault::NeverReady) => return Some(PollEffect::NotReady),
            Some(Fault::Unsolvable) => behaviour.give_up(id, now),
            _ if struck.is_some_and(|struck| !struck.is_processed()) => return None,
            _ => {}
        }
        Some(behaviour.poll(id, now))
    }
}

fn append(file: &mut File, accepted: &Accepted) {
    let written = serde_json::to_vec(accepted).map_err(io::Error::from).and_then(|mut line| {
        line.push(b'\n');
        file.write_all(&line)
    });
    if let Err(error) = written {
        tracing::error!(%error, "failed to write the ledger file");
    }
}
