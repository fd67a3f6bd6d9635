//! Checks a run while it happens. After every store call of a gateway the monitor reads the ledger entries that the
//! call appended and checks them, together with the provider's ledger. The first violation ends the run, so that the
//! story of a failing seed ends with the event that broke a rule.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use domain::{
    budget::Budgets,
    id::AttemptName,
    invariant::Checker,
    ledger::{Entry, Event},
    pause::PauseScope,
    ports::{Clock, Records, Scope},
    solve::Solve,
    time::Timestamp,
};
use engine::{EngineConfig, Health};
use simulator::Account;
use tokio::sync::Notify;

use crate::{books::LedgerBooks, keys::Failures, totals::Totals};

/// One line of a run's story.
#[derive(Clone, Debug)]
pub struct StoryLine {
    /// True time; a gateway's own clock, which dates the ledger, may be ahead.
    pub at: Timestamp,
    pub event: StoryEvent,
}

#[derive(Clone, Debug)]
pub enum StoryEvent {
    /// An entry of our ledger.
    Ledger(Entry),
    /// Anything else: a crash, a submission, a token that reached a worker.
    World(String),
}

/// Everything the monitor saw of a run.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub story: Vec<StoryLine>,
    pub totals: Totals,
    pub books: LedgerBooks,
    pub failures: Failures,
    pub checker: Checker,
    /// Violations found during the run.
    pub violations: Vec<String>,
    next: u64,
}

pub struct Monitor {
    records: Arc<dyn Records>,
    budgets: Budgets,
    account: Account,
    clock: Arc<dyn Clock>,
    observed: Mutex<Observed>,
    /// The site is declared at no gateway.
    withdrawn: AtomicBool,
    violation: Notify,
}

// === impl Monitor ===

impl Monitor {
    pub fn new(
        records: Arc<dyn Records>,
        budgets: Budgets,
        account: Account,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            records,
            budgets,
            account,
            clock,
            observed: Mutex::default(),
            withdrawn: AtomicBool::new(false),
            violation: Notify::new(),
        }
    }

    /// All gateways have, or have lost, the declaration of the site.
    pub fn set_withdrawn(&self, withdrawn: bool) {
        self.withdrawn.store(withdrawn, Ordering::SeqCst);
        let state = if withdrawn { "withdrawn" } else { "declared again" };
        self.record(format!("the site is {state}"));
    }

    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::SeqCst)
    }

    /// I29: a decision that was begun after the withdrawal spends nothing for a page.
    pub fn check_declared(&self, solve: &Solve) {
        if !solve.kind.is_pageless() {
            let what = format!("I29: {} goes on although its site is withdrawn", solve.id);
            self.observed().violations.push(what);
            self.violation.notify_one();
        }
    }

    /// Checks the entries appended since the last call. The store is in memory and answers at once, so nothing else runs
    /// between a decision and its check.
    pub async fn check_new_entries(&self) {
        let next = {
            let observed = self.observed();
            if !observed.violations.is_empty() {
                return; // the story ends here
            }
            observed.next
        };
        let entries = self.records.entries(next, usize::MAX).await.unwrap();
        let paid = self.account.with(|behaviour| behaviour.ledger().accepted.len());
        let is_news = !entries.is_empty();
        let mut broke = self.observed().check(entries, paid, self.clock.now());
        if is_news {
            let spending = self.records.spending(self.clock.now().day()).await.unwrap();
            let active = self.records.active(Scope::All, usize::MAX).await.unwrap();
            let mut observed = self.observed();
            let broken = observed.books.violations(&spending, &active, &self.budgets);
            broke |= !broken.is_empty();
            observed.violations.extend(broken);
        }
        if broke {
            self.violation.notify_one();
        }
    }

    /// I2: the intent is in the ledger before the submission leaves.
    pub fn check_submission(&self, attempt: AttemptName) {
        let mut observed = self.observed();
        if !observed.totals.intents.contains_key(&attempt.nonce) {
            let what = format!("I2: {} is submitted without an intent", attempt.solve);
            observed.violations.push(what);
            self.violation.notify_one();
        }
    }

    /// The engine survives a panic in one of its parts; the simulation reports it.
    pub fn check_health(&self, gateway: usize, health: &Health) {
        let mut observed = self.observed();
        let panics = health.troubles.iter().filter(|trouble| trouble.contains("panicked"));
        observed.violations.extend(panics.map(|panic| format!("gateway {gateway}: {panic}")));
    }

    /// Adds an event to the story.
    pub fn record(&self, what: String) {
        let line = StoryLine { at: self.clock.now(), event: StoryEvent::World(what) };
        self.observed().story.push(line);
    }

    /// Returns after the first violation.
    pub async fn first_violation(&self) {
        self.violation.notified().await;
    }

    pub fn result(&self) -> Observed {
        self.observed().clone()
    }

    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Monitor")
    }
}

// === impl Observed ===

impl Observed {
    pub fn entries(&self) -> Vec<Entry> {
        let entry = |line: &StoryLine| match &line.event {
            StoryEvent::Ledger(entry) => Some(entry.clone()),
            StoryEvent::World(_) => None,
        };
        self.story.iter().filter_map(entry).collect()
    }

    /// I29 for the pauses of sites, which the ledger alone cannot show: every page here is of one site.
    fn check_site_pause(&mut self, entry: &Entry) {
        let spends = matches!(entry.event, Event::Intent { .. } | Event::Authorised { .. });
        let has_page = entry.kind.as_ref().is_some_and(|kind| !kind.is_pageless());
        let mut pauses = self.checker.pauses().iter();
        if spends && has_page && pauses.any(|scope| matches!(scope, PauseScope::Site(_))) {
            self.violations
                .push(format!("I29: entry {} spends, and its site is paused", entry.seq));
        }
    }

    /// Returns `true` when an invariant was violated.
    fn check(&mut self, entries: Vec<Entry>, paid: usize, at: Timestamp) -> bool {
        let before = self.violations.len();
        for entry in entries {
            let known = self.checker.violations().len();
            self.checker.observe(&entry);
            let broken = &self.checker.violations()[known..];
            self.violations.extend(broken.iter().map(ToString::to_string));
            self.check_site_pause(&entry);
            let window = EngineConfig::default().failure_window;
            self.violations.extend(self.failures.add(&entry, window));
            self.totals.add(&entry);
            self.books.add(&entry);
            self.next = entry.seq + 1;
            self.story.push(StoryLine { at, event: StoryEvent::Ledger(entry) });
        }
        let explained = self.totals.explained_tasks();
        if paid > explained {
            self.violations.push(format!("P1: {paid} tasks paid, at most {explained} explained"));
        }
        self.violations.len() > before
    }
}

// === impl StoryLine ===

impl fmt::Display for StoryLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  ", self.at)?;
        match &self.event {
            StoryEvent::World(what) => f.write_str(what),
            StoryEvent::Ledger(entry) => {
                write!(f, "ledger {}:", entry.seq)?;
                if let Some(claim) = entry.claim {
                    write!(f, " claim {claim}")?;
                }
                if let Some(solve) = entry.solve {
                    write!(f, " solve {solve}")?;
                }
                write!(f, " {:?}", entry.event)
            }
        }
    }
}
