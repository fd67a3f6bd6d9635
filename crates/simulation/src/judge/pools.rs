//! I21, I22 and the rules of pools, checked on the ledger: orders stay within the target of one controller, unused
//! tokens within the waste allowance, and refills behind claims that wait for a slot.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{
    claim::ClaimState,
    id::{ClaimId, SolveId, TaskId},
    ledger::{Entry, Event},
    pool::{FREE_WASTE, Level},
    time::Timestamp,
    token::MIN_LEFT,
};
use engine::PoolWish;

use crate::world::{Traces, pools::fingerprint};

/// The state of one pool, derived from the ledger.
struct PoolState<'a> {
    wish: &'a PoolWish,
    /// Every claim for its challenge in the whole run.
    claims: &'a BTreeSet<ClaimId>,
    announced: u64,
    solves: BTreeSet<SolveId>,
    ordered: BTreeMap<SolveId, Timestamp>,
    under_way: BTreeSet<SolveId>,
    waiting: BTreeSet<ClaimId>,
    stock: BTreeMap<TaskId, Timestamp>,
    served: u64,
    wasted: u64,
    /// Tokens that no order asked for: their claim was withdrawn, or their attempt had been replaced.
    left: u64,
    broken: Vec<String>,
}

/// An order without a slot is dropped after this time.
const WANTED_FOR: Duration = Duration::from_secs(60);
/// A claim not submitted after this time waits for a slot.
const AT_ONCE: Duration = Duration::from_secs(5);
/// The longest store call of a run without slow ones.
const STORE_CALL: Duration = Duration::from_millis(200);

/// Violations of the pools.
pub(super) fn violations(traces: &Traces, entries: &[Entry]) -> Vec<String> {
    let history = super::all_claims(traces);
    let mut broken = Vec::new();
    for wish in traces.plan.pool_wishes() {
        let of = fingerprint(&wish);
        let claims = history.iter().filter(|claim| claim.fingerprint == of).map(|claim| claim.id);
        let kind = wish.challenge.kind();
        let delivered_callbacks = traces.announced.iter().filter(|(of, _)| of == kind);
        let announced = delivered_callbacks.map(|(_, count)| u64::from(*count)).sum();
        let claims = claims.collect();
        let mut state = PoolState::new(&wish, &claims, announced);
        for entry in entries {
            state.read(entry);
        }
        broken.append(&mut state.broken);
    }
    broken.extend(refills_before_claims(traces, entries));
    broken
}

/// I22: no refill is submitted while a claim waits for a slot, if one process has all slots and nothing else delays the
/// claim. A claim that has its slot reads its pictures before its intent, so a refill that got the next slot may be first by
/// the time of one store call.
fn refills_before_claims(traces: &Traces, entries: &[Entry]) -> Vec<String> {
    let plan = &traces.plan;
    let is_calm = plan.gateways == 1
        && !(plan.crashes || plan.pauses || plan.cuts || plan.auto)
        && plan.store_faults.slow == 0;
    let mut broken = Vec::new();
    let mut refills = BTreeSet::new();
    let mut queued = BTreeMap::new();
    let is_intent = |entry: &&Entry| matches!(entry.event, Event::Intent { attempt: 1, .. });
    let intents: BTreeMap<_, _> =
        entries.iter().filter(is_intent).map(|entry| (entry.solve, entry.at)).collect();
    for entry in entries.iter().filter(|_| is_calm) {
        match &entry.event {
            Event::Ordered { .. } => drop(refills.insert(entry.solve)),
            Event::Opened { .. } => drop(queued.insert(entry.solve, entry.at)),
            Event::Intent { .. } if refills.contains(&entry.solve) => {
                let has_slot = |solve: &Option<SolveId>| {
                    intents.get(solve).is_some_and(|at: &Timestamp| at.since(entry.at) < STORE_CALL)
                };
                let waits = |(solve, at): &(&Option<SolveId>, &Timestamp)| {
                    entry.at.since(**at) >= AT_ONCE && !has_slot(solve)
                };
                if let Some((_, since)) = queued.iter().find(waits) {
                    let what = format!("I22: a refill went at {}, a claim waits since", entry.at);
                    broken.push(format!("{what} {since}"));
                }
            }
            Event::Intent { .. } | Event::Failed { .. } | Event::Ended { .. } => {
                queued.remove(&entry.solve);
            }
            _ => {}
        }
    }
    broken
}

// === impl PoolState ===

impl<'a> PoolState<'a> {
    fn new(wish: &'a PoolWish, claims: &'a BTreeSet<ClaimId>, announced: u64) -> Self {
        Self {
            wish,
            claims,
            announced,
            solves: BTreeSet::new(),
            ordered: BTreeMap::new(),
            under_way: BTreeSet::new(),
            waiting: BTreeSet::new(),
            stock: BTreeMap::new(),
            served: 0,
            wasted: 0,
            left: 0,
            broken: Vec::new(),
        }
    }

    fn read(&mut self, entry: &Entry) {
        let claim = entry.claim.filter(|claim| self.claims.contains(claim));
        let is_order = matches!(entry.event, Event::Ordered { .. })
            && entry.kind.as_ref() == Some(self.wish.challenge.kind());
        let is_ours = entry.solve.is_some_and(|solve| self.solves.contains(&solve));
        if claim.is_some() || is_order || is_ours {
            self.observe(entry, claim);
        }
    }

    fn observe(&mut self, entry: &Entry, claim: Option<ClaimId>) {
        match &entry.event {
            Event::Opened { .. } => {
                self.waiting.extend(claim);
                self.begin(entry.solve);
            }
            Event::Joined => self.waiting.extend(claim),
            Event::Ordered { target, .. } => {
                self.begin(entry.solve);
                self.ordered.extend(entry.solve.map(|solve| (solve, entry.at)));
                self.check_order(entry, *target);
            }
            Event::Orphaned { by, .. } => {
                self.left += 1;
                self.begin(Some(*by));
            }
            Event::Intent { .. } => self.check_intent(entry),
            Event::Ready { .. } | Event::Failed { .. } | Event::WrittenOff { .. } => {
                entry.solve.map(|solve| self.under_way.remove(&solve));
            }
            Event::Banked { task, usable_until } => {
                self.stock.insert(task.clone(), *usable_until);
            }
            Event::Allotted { task, .. } => {
                self.served += 1;
                self.stock.remove(task);
                claim.map(|claim| self.waiting.remove(&claim));
            }
            Event::Ended { state, .. } => {
                self.left += u64::from(*state != ClaimState::Served);
                claim.map(|claim| self.waiting.remove(&claim));
            }
            Event::Wasted { task } if self.stock.remove(task).is_some() => {
                self.wasted += 1;
                self.check_waste(entry);
            }
            _ => {}
        }
    }

    fn begin(&mut self, solve: Option<SolveId>) {
        self.solves.extend(solve);
        self.under_way.extend(solve);
    }

    /// All orders together stay within the target, whichever gateways placed them.
    fn check_order(&mut self, entry: &Entry, target: u32) {
        let usable = |until: &&Timestamp| **until >= entry.at.plus(MIN_LEFT);
        let has = self.under_way.len() + self.stock.values().filter(usable).count();
        let spare = has.saturating_sub(self.waiting.len());
        let most = usize::try_from(target.min(self.wish.most)).unwrap();
        if spare > most {
            let what = format!("{spare} spare tokens at a target of {target}");
            self.broken.push(format!("I21: {what}, most {}, at {}", self.wish.most, entry.at));
        }
    }

    /// An order is not submitted long after it was placed, because demand may have ended.
    fn check_intent(&mut self, entry: &Entry) {
        let since = entry.solve.and_then(|solve| self.ordered.get(&solve));
        if let Some(since) = since.filter(|since| entry.at > since.plus(WANTED_FOR)) {
            self.broken.push(format!("I21: an order of {since} was sent at {}", entry.at));
        }
    }

    fn check_waste(&mut self, entry: &Entry) {
        let earned = self.served * u64::from(self.wish.waste) / 1000;
        let allowed = FREE_WASTE + self.announced + earned + self.left;
        if self.wish.level == Level::Auto && self.wasted > allowed {
            let what = format!("{} tokens wasted, {allowed} allowed", self.wasted);
            self.broken.push(format!("I21: {what}, at {}", entry.at));
        }
    }
}
