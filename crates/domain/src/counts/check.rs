//! Checks daily sums against a fresh walk over the claims and the ledger. Tests run it wherever a store was used; the walk
//! shares no code with the store.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    challenge::Kind,
    claim::{Claim, ClaimState, Source},
    declarations::POOL,
    id::{ClaimId, Project, SolveId, WorkerName},
    ledger::{Entry, Event},
    money::Money,
    retry::own,
    time::Day,
};

use super::{Counts, Total};

/// What makes a row of the daily sums.
type Row = (Day, WorkerName, Project, Kind);

/// The sums as the walk finds them.
#[derive(Default)]
struct Walk {
    rows: BTreeMap<Row, Counts>,
    /// Attempts whose cost is unknown.
    unknown: BTreeSet<(SolveId, u32)>,
    /// The row and cost of pool tokens that no claim has had yet, by the solve that paid.
    unassigned: BTreeMap<SolveId, (Entry, Option<Money>)>,
    /// The number of each solve's latest attempt.
    latest: BTreeMap<SolveId, u32>,
    /// The row of each claim's latest generation, and how it ended.
    generations: BTreeMap<ClaimId, (Row, Option<ClaimState>)>,
}

/// Every difference between the sums and what the claims and the ledger say; none if they agree. The ledger and the claims
/// must be complete: nothing was deleted, and no writes were lost.
pub fn differences(claims: &[Claim], entries: &[Entry], totals: &[Total]) -> Vec<String> {
    let mut walk = Walk::default();
    for claim in claims {
        walk.claim(claim);
    }
    for entry in entries {
        walk.entry(entry);
    }
    let mut stored: BTreeMap<Row, Counts> = BTreeMap::new();
    for Total { day, worker, project, kind, counts, .. } in totals {
        let row = (*day, worker.clone(), project.clone(), kind.clone());
        stored.entry(row).or_default().add(counts);
    }
    let rows: BTreeSet<&Row> = walk.rows.keys().chain(stored.keys()).collect();
    let none = Counts::default();
    let pairs = rows
        .into_iter()
        .map(|row| (row, walk.rows.get(row).unwrap_or(&none), stored.get(row).unwrap_or(&none)));
    pairs.flat_map(|(row, walked, stored)| different(row, walked, stored)).collect()
}

/// Whether claims and ledger are complete enough for [`differences`].
pub fn is_complete(claims: &[Claim], entries: &[Entry]) -> bool {
    let known: BTreeSet<ClaimId> = claims.iter().map(|claim| claim.id).collect();
    let entered: BTreeSet<ClaimId> = entries.iter().filter_map(|entry| entry.claim).collect();
    let is_whole = |entry: &Entry| {
        !matches!(entry.event, Event::WritesLost { .. })
            && entry.claim.is_none_or(|claim| known.contains(&claim))
    };
    // A claim that another gateway restored has no entries.
    known.is_subset(&entered)
        && entries.first().is_none_or(|first| first.seq == 1)
        && entries.iter().all(is_whole)
}

fn different(row: &Row, walked: &Counts, stored: &Counts) -> Vec<String> {
    let (now, then) = (stored.outcomes(), walked.outcomes());
    let number = |name, stored: u64, walked: u64| {
        (stored != walked).then(|| format!("{row:?}: {name} is {stored}, not {walked}"))
    };
    let money = |name, stored: Money, walked: Money| {
        (stored != walked).then(|| format!("{row:?}: {name} is {stored}, not {walked}"))
    };
    let found = [
        number("claims", now.claims, then.claims),
        number("served", now.served, then.served),
        number("failed", now.failed, then.failed),
        number("lapsed", now.lapsed, then.lapsed),
        number("withdrawn", now.withdrawn, then.withdrawn),
        number("waiting", now.waiting, then.waiting),
        number("opened", stored.opened, walked.opened),
        number("ordered", stored.ordered, walked.ordered),
        number("joined", stored.joined, walked.joined),
        number("attempts", stored.attempts, walked.attempts),
        number("solved", stored.solved, walked.solved),
        number("ambiguous", stored.ambiguous, walked.ambiguous),
        number("authorised", stored.authorised, walked.authorised),
        number("wasted", stored.wasted, walked.wasted),
        number("priced", stored.priced, walked.priced),
        number("cost_unknown", stored.cost_unknown, walked.cost_unknown),
        number("cost_recounted", stored.cost_recounted, walked.cost_recounted),
        number("taken_unknown", stored.taken_unknown, walked.taken_unknown),
        number("given_unknown", stored.given_unknown, walked.given_unknown),
        number("spared", stored.spared - stored.spared_left, walked.spared),
        money("cost", stored.cost, walked.cost),
        money("taken", stored.taken, walked.taken),
        money("given", stored.given, walked.given),
    ];
    found.into_iter().flatten().collect()
}

// === impl Walk ===

impl Walk {
    fn claim(&mut self, claim: &Claim) {
        let row = (
            claim.opened_at.day(),
            claim.worker.clone(),
            claim.project.clone(),
            claim.kind.in_totals(),
        );
        let counts = self.rows.entry(row).or_default();
        counts.claims += 1;
        match claim.state {
            ClaimState::Waiting => {}
            ClaimState::Served => {
                counts.served += 1;
                let is_free = claim.cost == Some(Money::ZERO);
                counts.spared += u64::from(is_free && claim.source != Some(Source::Upstream));
            }
            ClaimState::Failed => counts.failed += 1,
            ClaimState::Lapsed => counts.lapsed += 1,
            ClaimState::Withdrawn => counts.withdrawn += 1,
        }
    }

    fn entry(&mut self, entry: &Entry) {
        self.generation(entry);
        match &entry.event {
            Event::Opened { .. } => self.add(entry, |counts| counts.opened += 1),
            Event::Ordered { .. } => self.add(entry, |counts| counts.ordered += 1),
            Event::Joined => self.add(entry, |counts| counts.joined += 1),
            Event::Accepted { .. } => self.add(entry, |counts| counts.attempts += 1),
            Event::Orphaned { attempt, by, .. } => self.orphan(entry, *attempt, *by),
            Event::Ambiguous { .. } => self.add(entry, |counts| counts.ambiguous += 1),
            Event::Wasted { .. } => self.add(entry, |counts| counts.wasted += 1),
            Event::Authorised { attempt, .. } => {
                self.add(entry, |counts| counts.authorised += 1);
                self.cost(entry, *attempt, None);
            }
            Event::WrittenOff { attempt } => self.cost(entry, *attempt, None),
            Event::NotAccepted { attempt, code } if code.as_str() == own::DUPLICATE_TASK => {
                self.cost(entry, *attempt, None);
            }
            Event::Failed { code } if code.as_str() == own::POISON => {
                let latest = entry.solve.and_then(|solve| self.latest.get(&solve).copied());
                self.cost(entry, latest.unwrap_or_default(), None);
            }
            Event::Intent { attempt, .. } => {
                self.latest.extend(entry.solve.map(|solve| (solve, *attempt)));
            }
            Event::TaskOver { attempt, cost, .. } => self.cost(entry, *attempt, *cost),
            Event::Ready { attempt, cost, .. } => self.answer(entry, *attempt, *cost),
            Event::Allotted { paid_by, .. } => self.pass_on(entry, *paid_by),
            Event::Replayed
            | Event::Refused { .. }
            | Event::Refusals { .. }
            | Event::NotAccepted { .. }
            | Event::Overdue { .. }
            | Event::Failed { .. }
            | Event::Recovered { .. }
            | Event::Banked { .. }
            | Event::Delivered { .. }
            | Event::Ended { .. }
            | Event::DeadLettered { .. }
            | Event::DeadLetterClosed
            | Event::DeadLetterReopened { .. }
            | Event::Reported { .. }
            | Event::Revived { .. }
            | Event::Purged { .. }
            | Event::CalledBack { .. }
            | Event::CallbackDropped { .. }
            | Event::Administered { .. }
            | Event::WritesLost { .. }
            | Event::Carried { .. }
            | Event::Reopened { .. }
            | Event::BalanceAsked { .. }
            | Event::BalanceRead { .. } => {}
        }
    }

    /// A claim row shows the latest generation only. Earlier ones count as claims of their own, as they ended.
    fn generation(&mut self, entry: &Entry) {
        let (Some(claim), Some(kind)) = (entry.claim, &entry.kind) else { return };
        let row = (entry.at.day(), entry.worker.clone(), entry.project.clone(), kind.in_totals());
        if let Event::Reopened { .. } = entry.event
            && let Some((earlier, ended)) = self.generations.remove(&claim)
        {
            let counts = self.rows.entry(earlier).or_default();
            counts.claims += 1;
            counts.failed += u64::from(ended == Some(ClaimState::Failed));
            counts.lapsed += u64::from(ended == Some(ClaimState::Lapsed));
        }
        let (_, ended) = self.generations.entry(claim).or_insert((row, None));
        if let Event::Ended { state, .. } = &entry.event {
            *ended = Some(*state);
        }
    }

    fn answer(&mut self, entry: &Entry, attempt: u32, cost: Option<Money>) {
        self.add(entry, |counts| counts.solved += 1);
        self.cost(entry, attempt, cost);
        let is_refill = entry.worker.as_str() == POOL;
        if let Some(solve) = entry.solve.filter(|_| is_refill) {
            self.unassigned.insert(solve, (entry.clone(), cost));
        }
    }

    /// A task that turned up late takes what is unknown about its attempt along.
    fn orphan(&mut self, entry: &Entry, attempt: u32, by: SolveId) {
        self.add(entry, |counts| counts.attempts += 1);
        let parent = entry.solve.map(|solve| (solve, attempt));
        if parent.is_some_and(|parent| self.unknown.remove(&parent)) {
            self.unknown.insert((by, 1));
        }
    }

    fn pass_on(&mut self, allotted: &Entry, paid_by: SolveId) {
        let Some((mut ready, cost)) = self.unassigned.remove(&paid_by) else { return };
        ready.at = allotted.at;
        let amount = cost.unwrap_or_default();
        let unknown = u64::from(cost.is_none());
        self.add(&ready, |counts| {
            counts.given = counts.given + amount;
            counts.given_unknown += unknown;
        });
        self.add(allotted, |counts| {
            counts.taken = counts.taken + amount;
            counts.taken_unknown += unknown;
        });
    }

    fn cost(&mut self, entry: &Entry, attempt: u32, cost: Option<Money>) {
        let Some(solve) = entry.solve else { return };
        let was_unknown = self.unknown.remove(&(solve, attempt));
        self.add(entry, |counts| {
            counts.cost_recounted += u64::from(was_unknown);
            counts.cost_unknown += u64::from(cost.is_none());
            counts.priced += u64::from(cost.is_some());
            counts.cost = counts.cost + cost.unwrap_or_default();
        });
        if cost.is_none() {
            self.unknown.insert((solve, attempt));
        }
    }

    fn add(&mut self, entry: &Entry, change: impl FnOnce(&mut Counts)) {
        let Some(kind) = &entry.kind else { return };
        let row = (entry.at.day(), entry.worker.clone(), entry.project.clone(), kind.in_totals());
        change(self.rows.entry(row).or_default());
    }
}
