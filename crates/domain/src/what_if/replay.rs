//! Reads the ledger entry by entry. What it keeps is bounded by the solves and claims in flight and the tokens alive.
#![expect(clippy::wildcard_enum_match_arm, reason = "it names the events it is about")]

use std::{collections::BTreeMap, time::Duration};

use crate::{
    challenge::Kind,
    claim::{Claim, Source},
    fingerprint::KeyHash,
    id::{ClaimId, SolveId, TaskId},
    ledger::{Entry, Event},
    money::Money,
    retry::own,
    time::Timestamp,
};

use super::{
    Settings, WhatIf,
    outcome::{KindSums, Outcome},
};

/// Reads the entries of a period, in order.
#[derive(Debug)]
pub struct Replay {
    settings: Settings,
    /// The window that was in force.
    window: Duration,
    kinds: BTreeMap<Kind, KindSums>,
    solves: BTreeMap<SolveId, SolveRun>,
    /// When each waiting claim was made, and whether the settings save it.
    waiting: BTreeMap<ClaimId, WaitingClaim>,
    /// The unexpired tokens of pools.
    pooled: BTreeMap<TaskId, Timestamp>,
    /// The last answer of each claim without a key: when it came, and how long its token is usable.
    answers: BTreeMap<KeyHash, (Timestamp, Timestamp)>,
    /// The solve that was answered last, and how much later the settings would have seen it.
    answered: Option<(SolveId, u64)>,
    pruned_at: Timestamp,
}

/// What the ledger does not say about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimFacts {
    /// How it is found again.
    pub key: KeyUse,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How often it was repeated.
    pub repeats: u64,
}

/// How a claim is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// By the worker's own idempotency key.
    Named,
    /// By its parameters.
    Derived(KeyHash),
    /// Not at all.
    Own,
}

/// A solve in flight.
#[derive(Debug, Default)]
struct SolveRun {
    /// `None` until an entry says it.
    kind: Option<Kind>,
    is_refill: bool,
    is_saved: bool,
    /// Its first claim.
    claim: Option<ClaimId>,
    accepted_at: Option<Timestamp>,
    sums: Outcome,
    /// What the settings' polling adds.
    later_slot_ms: u64,
}

#[derive(Debug)]
struct WaitingClaim {
    since: Timestamp,
    is_saved: bool,
    key: Option<KeyHash>,
}

/// How often expired tokens are forgotten.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

// === impl Replay ===

impl Replay {
    /// A replay under other settings. `window` is the reuse window that was in force.
    pub fn new(settings: Settings, window: Duration) -> Self {
        Self {
            settings,
            window,
            kinds: BTreeMap::new(),
            solves: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pooled: BTreeMap::new(),
            answers: BTreeMap::new(),
            answered: None,
            pruned_at: Timestamp::default(),
        }
    }

    /// The claim whose facts this entry needs.
    pub fn needs(&self, entry: &Entry) -> Option<ClaimId> {
        let is_needed = match &entry.event {
            Event::Replayed => true,
            Event::Opened { .. } => self.is_wider(),
            _ => false,
        };
        entry.claim.filter(|_| is_needed)
    }

    /// Reads the next entry, with the facts about its claim if it needs them and they are known.
    pub fn add(&mut self, entry: &Entry, facts: Option<&ClaimFacts>) {
        self.prune(entry.at);
        match (&entry.event, entry.claim, entry.solve) {
            (Event::Opened { .. }, Some(claim), Some(solve)) => {
                self.open(entry, claim, solve, facts);
            }
            (Event::Ordered { .. }, _, Some(solve)) => {
                let run = SolveRun { is_refill: true, ..SolveRun::default() };
                let run = SolveRun { is_saved: self.settings.no_pools, ..run };
                self.solves.insert(solve, run);
                self.count_solve(entry, solve, |sums| sums.solves += 1);
            }
            (Event::Joined, Some(claim), _) => {
                self.wait(claim, entry.at, false, None);
                let added = u64::from(self.settings.no_joins);
                let sums = self.sums(entry);
                sums.actual.claims += 1;
                sums.added += added;
            }
            (Event::Replayed, ..) => self.repeat(entry, facts),
            (Event::Allotted { .. }, Some(claim), _) => self.allot(entry, claim),
            (Event::Ended { .. }, Some(claim), _) => drop(self.waiting.remove(&claim)),
            (Event::Wasted { task }, ..) => self.waste(entry, task),
            (_, _, Some(solve)) => self.follow(entry, solve),
            _ => {}
        }
    }

    /// Everything was read.
    pub fn finish(mut self) -> WhatIf {
        let unfinished: Vec<SolveId> = self.solves.keys().copied().collect();
        for solve in unfinished {
            self.end_solve(solve, false);
        }
        WhatIf::of(&self.kinds)
    }

    // --- claims ---

    fn open(&mut self, entry: &Entry, claim: ClaimId, solve: SolveId, facts: Option<&ClaimFacts>) {
        let key = match facts.map(|facts| facts.key) {
            Some(KeyUse::Derived(key)) => Some(key),
            Some(KeyUse::Named | KeyUse::Own) | None => None,
        };
        let window = self.settings.reuse_window.unwrap_or_default();
        let known = key.and_then(|key| self.answers.get(&key));
        let is_saved =
            known.is_some_and(|(at, usable)| entry.at < at.plus(window) && entry.at < *usable);
        let run = SolveRun { is_saved, claim: Some(claim), ..SolveRun::default() };
        self.solves.insert(solve, run);
        self.wait(claim, entry.at, is_saved, key.filter(|_| !is_saved));
        self.sums(entry).actual.claims += 1;
        self.count_solve(entry, solve, |sums| sums.solves += 1);
    }

    fn wait(&mut self, claim: ClaimId, since: Timestamp, is_saved: bool, key: Option<KeyHash>) {
        self.waiting.insert(claim, WaitingClaim { since, is_saved, key });
    }

    fn repeat(&mut self, entry: &Entry, facts: Option<&ClaimFacts>) {
        let Settings { no_keys, no_reuse, reuse_window, .. } = self.settings;
        let repeats = facts.map_or(1, |facts| facts.repeats.max(1));
        let added = match facts {
            Some(ClaimFacts { key: KeyUse::Named, .. }) => {
                if no_keys {
                    repeats
                } else {
                    0
                }
            }
            Some(ClaimFacts { key: KeyUse::Derived(_), ended_at, .. }) => {
                let is_late =
                    |window| ended_at.is_some_and(|ended: Timestamp| entry.at > ended.plus(window));
                if no_reuse { repeats } else { u64::from(reuse_window.is_some_and(is_late)) }
            }
            Some(ClaimFacts { key: KeyUse::Own, .. }) | None => 0,
        };
        let sums = self.sums(entry);
        sums.actual.repeats += repeats;
        sums.added += added;
    }

    fn allot(&mut self, entry: &Entry, claim: ClaimId) {
        let Event::Allotted { paid_by, task, source, usable_until } = &entry.event else { return };
        let waited = self.waiting.remove(&claim);
        let of_pool = self.pooled.contains_key(task)
            || self.solves.get(paid_by).is_some_and(|run| run.is_refill);
        let without_pool = of_pool && self.settings.no_pools;
        let later = self.answered.filter(|(solve, _)| solve == paid_by).map_or(0, |(_, ms)| ms);
        let is_new = waited.is_none() && *source == Source::Stock;
        let took = waited.as_ref().map_or(0, |waited| millis(entry.at.since(waited.since)));
        if let Some(key) = waited.as_ref().and_then(|waited| waited.key) {
            self.answers.insert(key, (entry.at, *usable_until));
        }
        if let Some(until) = self.pooled.get_mut(task) {
            *until = *usable_until;
        }
        let is_saved = waited.is_some_and(|waited| waited.is_saved);
        let sums = self.sums(entry);
        sums.actual.claims += u64::from(is_new);
        sums.actual.served += 1;
        sums.actual.wait_ms += took;
        if is_saved {
            sums.saved.wait_ms += took;
        } else {
            sums.later_ms += later;
        }
        if *source == Source::Upstream {
            sums.sample.served += 1;
            sums.sample.wait_ms += took + later;
        }
        if without_pool {
            sums.added += 1;
            sums.added_waits += 1;
            sums.saved.wait_ms += took;
        }
    }

    fn waste(&mut self, entry: &Entry, task: &TaskId) {
        let is_saved = self.settings.no_pools && self.pooled.contains_key(task);
        let sums = self.sums(entry);
        sums.actual.wasted += 1;
        sums.saved.wasted += u64::from(is_saved);
    }

    // --- solves ---

    fn follow(&mut self, entry: &Entry, solve: SolveId) {
        match &entry.event {
            Event::Accepted { .. } => {
                self.solves.entry(solve).or_default().accepted_at = Some(entry.at);
                self.count_solve(entry, solve, |sums| sums.attempts += 1);
            }
            Event::Orphaned { by, .. } => {
                let parent = self.solves.get(&solve);
                let (is_refill, is_saved) =
                    parent.map_or((false, false), |run| (run.is_refill, run.is_saved));
                let accepted_at = Some(entry.at);
                let run = SolveRun { is_refill, is_saved, accepted_at, ..SolveRun::default() };
                self.solves.insert(*by, run);
                self.count_solve(entry, *by, |sums| sums.attempts += 1);
            }
            Event::Authorised { .. } | Event::WrittenOff { .. } => {
                self.count_solve(entry, solve, |sums| sums.cost_unknown += 1);
            }
            Event::NotAccepted { code, .. } if code.as_str() == own::DUPLICATE_TASK => {
                self.count_solve(entry, solve, |sums| sums.cost_unknown += 1);
            }
            Event::TaskOver { cost, .. } => self.end_task(entry, solve, *cost),
            Event::Ready { cost, task, .. } => {
                self.end_task(entry, solve, *cost);
                if self.solves.get(&solve).is_some_and(|run| run.is_refill) {
                    // The next entry about it says how long it is usable.
                    self.pooled.insert(task.clone(), Timestamp::from_millis(u64::MAX));
                }
                self.end_solve(solve, true);
            }
            Event::Banked { task, usable_until } => {
                if let Some(until) = self.pooled.get_mut(task) {
                    *until = *usable_until;
                }
            }
            Event::Failed { .. } => self.end_solve(solve, true),
            _ => {}
        }
    }

    /// Counts an attempt that ended.
    fn end_task(&mut self, entry: &Entry, solve: SolveId, cost: Option<Money>) {
        let accepted_at = self.solves.entry(solve).or_default().accepted_at.take();
        let took = accepted_at.map_or(0, |at| millis(entry.at.since(at)));
        // The daily sums count the time of tasks that were answered.
        let is_answered = matches!(entry.event, Event::Ready { .. });
        let (polls, seen) = match self.settings.poll_every.map(millis) {
            Some(every @ 1..) => {
                let polls = took.div_ceil(every).max(1);
                (polls, polls.saturating_mul(every))
            }
            Some(0) | None => (0, took),
        };
        let later = seen - took;
        if is_answered {
            self.answered = Some((solve, later));
        }
        self.count_solve(entry, solve, |sums| {
            sums.cost = sums.cost + cost.unwrap_or_default();
            sums.cost_unknown += u64::from(cost.is_none());
            sums.polls += polls;
            sums.slot_ms += if is_answered { took } else { 0 };
        });
        if is_answered && let Some(run) = self.solves.get_mut(&solve) {
            run.later_slot_ms += later;
        }
    }

    /// Adds to the sums of a solve and of its kind.
    fn count_solve(&mut self, entry: &Entry, solve: SolveId, count: impl Fn(&mut Outcome)) {
        let run = self.solves.entry(solve).or_default();
        run.kind = run.kind.take().or_else(|| entry.kind.as_ref().map(Kind::in_totals));
        count(&mut run.sums);
        count(&mut self.sums(entry).actual);
    }

    /// Adds a solve to what its kind saves and, if it ended, to what an added one is like.
    fn end_solve(&mut self, solve: SolveId, has_ended: bool) {
        let Some(run) = self.solves.remove(&solve) else { return };
        let Some(kind) = run.kind else { return };
        let sums = self.kinds.entry(kind).or_default();
        let attempted = Outcome { claims: 0, ..run.sums };
        if run.is_saved {
            sums.saved.add(&attempted);
        } else {
            sums.later_slot_ms += run.later_slot_ms;
            sums.polls += run.sums.polls;
        }
        if has_ended && run.sums.attempts > 0 && (run.claim.is_some() || run.is_refill) {
            let slot_ms = run.sums.slot_ms + run.later_slot_ms;
            sums.sample.add(&Outcome { solves: 1, slot_ms, ..attempted });
        }
    }

    // --- bookkeeping ---

    fn sums(&mut self, entry: &Entry) -> &mut KindSums {
        let kind = entry.kind.as_ref().map_or_else(|| Kind::Other("other".into()), Kind::in_totals);
        self.kinds.entry(kind).or_default()
    }

    /// Whether more is reused than was.
    fn is_wider(&self) -> bool {
        !self.settings.no_reuse && self.settings.reuse_window.is_some_and(|new| new > self.window)
    }

    fn prune(&mut self, now: Timestamp) {
        if now.since(self.pruned_at) < PRUNE_EVERY {
            return;
        }
        self.pruned_at = now;
        // A token is wasted a little after its end.
        self.pooled.retain(|_, until| now.since(*until) < PRUNE_EVERY);
        self.answers.retain(|_, (_, usable)| now < *usable);
    }
}

// === impl ClaimFacts ===

impl ClaimFacts {
    /// The facts of a claim that was repeated so often.
    pub fn of(claim: &Claim, repeats: u64) -> Self {
        let derived = KeyHash::derived(&claim.worker, &claim.fingerprint);
        let key = match claim.key {
            Some(key) if key == derived => KeyUse::Derived(key),
            Some(_) => KeyUse::Named,
            None => KeyUse::Own,
        };
        Self { key, ended_at: claim.ended_at, repeats }
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
