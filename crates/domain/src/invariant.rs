//! The invariants by number, and a checker that reads the ledger entry by entry. The simulation runs it after every store
//! call of a gateway (`crates/simulation/src/monitor.rs`), the store tests at the end of each case.

#![expect(clippy::wildcard_enum_match_arm, reason = "each check looks at a few of the many events")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    admin_action::AdminAction,
    challenge::Sharing,
    claim::ClaimState,
    id::{ClaimId, SolveId, TaskId},
    lease::Fence,
    ledger::{Entry, Event},
    pause::PauseScope,
    retry::own,
    time::Timestamp,
    token::MIN_LEFT,
};

/// The invariants, by number. [`Checker`] checks what the ledger alone can show: of 1, 3, 4, 5, 7, 8, 12, 13, 19, 29
/// and 30 with every entry, of 6, 14 and 19 at the end of a run. docs/invariants.md names the tests of each, and what no test
/// guards yet.
pub const INVARIANTS: [(u8, &str); 30] = [
    (1, "for each solve and attempt at most one intent; attempts strictly increase"),
    (2, "every submission the provider sees has an earlier durable intent with the same nonce"),
    (3, "accepted tasks of a solve are at most 1 + tasks that ended + authorised resubmissions"),
    (
        4,
        "no intent follows an intent or ambiguous attempt without not-accepted or authorised between them",
    ),
    (5, "every task id that reached us is in exactly one accepted or orphaned entry"),
    (6, "every ambiguous attempt is resolved, and a day's authorised ones stay within the budget"),
    (7, "an exclusive token belongs to at most one claim, and is delivered to that claim only"),
    (
        8,
        "a token is delivered only with its least time left, counted from the earliest it can be ready",
    ),
    (9, "all final answers of one generation of a key are equal"),
    (10, "the same key with another challenge is refused and changes nothing"),
    (11, "different keys share a token only when its kind is shared and the content equal"),
    (12, "no decision carries a fence below the highest its solve has seen"),
    (13, "final states never change; those of a claim hold within its generation"),
    (
        14,
        "a final state reaches the last waiting caller within the re-read bound, with all hints lost",
    ),
    (15, "cancelling any caller never abandons a submitted solve"),
    (16, "a dead holder's solve is taken over within lease + sweep"),
    (17, "polls of a task stay within their number and gap, and none follows the end"),
    (18, "a retry waits within its backoff, and Retry-After is a floor"),
    (
        19,
        "every claim that failed, or lapsed unpaid, has exactly one dead letter with code, attempts and cost, unless the guard stopped it",
    ),
    (20, "a solve recovered more than three times is failed, not claimed again"),
    (21, "wasted speculative tokens stay within the waste budget"),
    (22, "known tasks in flight stay within the slots"),
    (23, "reserved = settled + released + outstanding; spend stays within the budget"),
    (24, "settled spend equals the provider's statement within the ambiguous ones"),
    (25, "with expiry in the store switched off no answer changes"),
    (26, "a write that meets its own retried copy is recognised and counted once"),
    (27, "the same schedule gives the same history on every store"),
    (28, "account errors fail no claim, and make at most one probe per step"),
    (
        29,
        "no intent is written for a claim that the declarations in force do not allow, and none while it is paused",
    ),
    (
        30,
        "a key opens its claim again only after a failure that cannot have lost money, and once per failure",
    ),
];

/// An entry that breaks an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number of the invariant.
    pub invariant: u8,
    /// The ledger entry that shows it.
    pub seq: u64,
    /// What the checker saw.
    pub what: String,
}

/// Reads ledger entries in order and keeps what it needs to check the next one.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    solves: BTreeMap<SolveId, SolveSeen>,
    claims: BTreeMap<ClaimId, ClaimSeen>,
    tokens: BTreeMap<TaskId, TokenSeen>,
    tasks: BTreeMap<TaskId, SolveId>,
    /// The claims that revive a dead letter.
    revivals: BTreeSet<ClaimId>,
    /// The scopes that are paused.
    pauses: BTreeSet<PauseScope>,
    violations: Vec<Violation>,
}

#[derive(Clone, Debug, Default)]
struct SolveSeen {
    attempt: u32,
    open: Open,
    fence: Fence,
    accepted: u32,
    over: u32,
    authorised: u32,
    ready: bool,
    dead_letters: u32,
    /// Dead letters that were purged and not followed by another one.
    purged: u32,
    ambiguous: u32,
    /// A claim of it revives a dead letter, which is opened again when the claim lapses unpaid.
    is_revival: bool,
    /// It was given up while an attempt was open, so money may be lost.
    gave_up_open: bool,
}

/// The last that the ledger says about the current attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    #[default]
    Nothing,
    Intent,
    Ambiguous,
    Task,
}

#[derive(Clone, Debug, Default)]
struct ClaimSeen {
    ended: Option<ClaimState>,
    solve: Option<SolveId>,
    task: Option<TaskId>,
    delivered: bool,
    /// It ended because it is not declared, so it has no dead letter.
    was_forbidden: bool,
    /// Money may have been lost for it when it ended.
    may_have_paid: bool,
    /// How often its key opened it again.
    reopened: u32,
}

#[derive(Clone, Debug, Default)]
struct TokenSeen {
    owner: Option<ClaimId>,
    delivered: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = INVARIANTS
            .iter()
            .find(|(number, _)| *number == self.invariant)
            .map_or("", |(_, text)| text);
        write!(f, "I{} ({sentence}) broken at entry {}: {}", self.invariant, self.seq, self.what)
    }
}

// === impl Checker ===

impl Checker {
    /// Checks a whole ledger.
    pub fn check(entries: &[Entry]) -> Vec<Violation> {
        let mut checker = Self::default();
        for entry in entries {
            checker.observe(entry);
        }
        checker.violations
    }

    /// Checks the next entry.
    pub fn observe(&mut self, entry: &Entry) {
        self.observe_pause(entry);
        if let Some(solve) = entry.solve {
            self.observe_solve(solve, entry);
        }
        if let Event::Revived { claim, .. } = &entry.event {
            self.observe_revival(*claim);
        }
        self.observe_token(entry);
        if let Some(claim) = entry.claim {
            self.observe_claim(claim, entry);
        }
    }

    /// The violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Violations at the end of a run in which everything had time to end.
    pub fn unfinished(&self) -> Vec<Violation> {
        let mut left = Vec::new();
        let mut note = |invariant, what| left.push(Violation { invariant, seq: u64::MAX, what });
        for (id, seen) in &self.solves {
            if seen.open == Open::Ambiguous {
                note(6, format!("{id} is still ambiguous"));
            }
        }
        for (id, seen) in &self.claims {
            if seen.ended.is_none() {
                note(14, format!("claim {id} never ended"));
            }
            let solve = seen.solve.and_then(|solve| self.solves.get(&solve));
            let letters = solve.map_or(0, |solve| solve.dead_letters);
            if seen.ended == Some(ClaimState::Failed) && !seen.was_forbidden && letters != 1 {
                note(19, format!("failed claim {id} has {letters} dead letters"));
            }
            let is_unpaid = solve.is_some_and(SolveSeen::is_unpaid) && seen.task.is_none();
            let is_kept = letters == 1 || solve.is_some_and(|solve| solve.is_revival);
            if seen.ended == Some(ClaimState::Lapsed) && is_unpaid && !is_kept {
                note(19, format!("claim {id} lapsed unpaid and has {letters} dead letters"));
            }
        }
        left
    }

    /// The ledger has no page of a solve, so the pauses of sites are left to the simulation, whose pages are all of one site.
    fn observe_pause(&mut self, entry: &Entry) {
        match &entry.event {
            Event::Administered { action: AdminAction::Paused { scope }, .. } => {
                self.pauses.insert(scope.clone());
            }
            Event::Administered { action: AdminAction::Resumed { scope }, .. } => {
                self.pauses.remove(scope);
            }
            Event::Intent { .. } | Event::Authorised { .. } => {
                // Others may wait for an answer that can be shared.
                let is_alone =
                    entry.kind.as_ref().is_some_and(|kind| kind.sharing() == Sharing::Exclusive);
                let theirs = PauseScope::Worker(entry.worker.clone());
                let stopped = [Some(PauseScope::Everything), is_alone.then_some(theirs)];
                for scope in
                    stopped.into_iter().flatten().filter(|scope| self.pauses.contains(scope))
                {
                    self.violations.push(Violation {
                        invariant: 29,
                        seq: entry.seq,
                        what: format!("{scope} is paused"),
                    });
                }
            }
            _ => {}
        }
    }

    /// The scopes that are paused after the last entry.
    pub fn pauses(&self) -> &BTreeSet<PauseScope> {
        &self.pauses
    }

    fn observe_revival(&mut self, claim: ClaimId) {
        self.revivals.insert(claim);
        if let Some(solve) = self.claims.get(&claim).and_then(|seen| seen.solve) {
            self.solves.entry(solve).or_default().is_revival = true;
        }
    }

    fn broken(&mut self, invariant: u8, entry: &Entry, what: String) {
        self.violations.push(Violation { invariant, seq: entry.seq, what });
    }

    fn observe_solve(&mut self, id: SolveId, entry: &Entry) {
        let mut seen = self.solves.get(&id).cloned().unwrap_or_default();
        for (invariant, what) in seen.apply(&entry.event) {
            self.broken(invariant, entry, format!("{id}: {what}"));
        }
        if let Event::Accepted { task, .. } | Event::Orphaned { task, .. } = &entry.event
            && let Some(first) = self.tasks.insert(task.clone(), id)
        {
            self.broken(5, entry, format!("task {task} of {first} appears again for {id}"));
        }
        self.solves.insert(id, seen);
    }

    fn observe_token(&mut self, entry: &Entry) {
        let exclusive = entry.kind.as_ref().is_none_or(|kind| kind.sharing() == Sharing::Exclusive);
        match &entry.event {
            Event::Allotted { task, .. } if exclusive => {
                let token = self.tokens.entry(task.clone()).or_default();
                let before = std::mem::replace(&mut token.owner, entry.claim);
                if let Some(owner) = before {
                    let what = format!("token of task {task} belongs to {owner} already");
                    self.broken(7, entry, what);
                }
            }
            Event::Banked { task, .. } if exclusive => {
                let token = self.tokens.entry(task.clone()).or_default();
                token.owner = None;
                if token.delivered {
                    let what = format!("token of task {task} was delivered and is banked again");
                    self.broken(7, entry, what);
                }
            }
            Event::Delivered { task, usable_until } => {
                self.observe_delivery(entry, task, *usable_until, exclusive);
            }
            _ => {}
        }
    }

    fn observe_delivery(
        &mut self,
        entry: &Entry,
        task: &TaskId,
        usable_until: Timestamp,
        exclusive: bool,
    ) {
        let token = self.tokens.entry(task.clone()).or_default();
        token.delivered = true;
        let owner = token.owner;
        if exclusive && owner != entry.claim {
            self.broken(7, entry, format!("token of task {task} belongs to {owner:?}"));
        }
        if entry.at.plus(MIN_LEFT) > usable_until {
            let what = format!("token of task {task} delivered with too little time left");
            self.broken(8, entry, what);
        }
    }

    fn observe_claim(&mut self, id: ClaimId, entry: &Entry) {
        let mut seen = self.claims.get(&id).cloned().unwrap_or_default();
        let mut what = None;
        match &entry.event {
            Event::Allotted { task, .. } => {
                what = seen
                    .ended
                    .map(|state| format!("claim {id} was {} and got a token", state.name()));
                seen.ended = Some(ClaimState::Served);
                seen.task = Some(task.clone());
            }
            Event::Ended { state, code } => {
                seen.was_forbidden =
                    code.as_ref().is_some_and(|code| code.as_str() == own::SITE_NOT_DECLARED);
                if seen.ended.is_some() && !self.gives_back(&seen, *state) {
                    what = Some(format!("claim {id} ended twice"));
                }
                seen.ended = Some(*state);
                let solve = entry.solve.and_then(|solve| self.solves.get(&solve));
                seen.may_have_paid = solve.is_some_and(SolveSeen::may_have_lost_money);
            }
            Event::Reopened { generation } => {
                for what in seen.reopen(*generation) {
                    self.broken(30, entry, format!("claim {id} {what}"));
                }
            }
            Event::Delivered { .. } => seen.delivered = true,
            _ => {}
        }
        seen.solve = entry.solve.or(seen.solve);
        if let Some(solve) = seen.solve.filter(|_| self.revivals.contains(&id)) {
            self.solves.entry(solve).or_default().is_revival = true;
        }
        self.claims.insert(id, seen);
        if let Some(what) = what {
            self.broken(13, entry, what);
        }
    }

    /// Whether the new end is legal after `Served`: a claim may leave its token before delivery, when it lapses or is
    /// withdrawn.
    fn gives_back(&mut self, claim: &ClaimSeen, state: ClaimState) -> bool {
        if let Some(token) = claim.task.as_ref().and_then(|task| self.tokens.get_mut(task)) {
            token.owner = None;
        }
        let leaves = matches!(state, ClaimState::Lapsed | ClaimState::Withdrawn);
        claim.ended == Some(ClaimState::Served) && leaves && !claim.delivered
    }
}

// === impl ClaimSeen ===

impl ClaimSeen {
    /// Begins the next generation, and returns why that is not allowed.
    fn reopen(&mut self, generation: u32) -> Vec<String> {
        let mut broken = Vec::new();
        if !matches!(self.ended, Some(ClaimState::Failed | ClaimState::Lapsed)) {
            let state = self.ended.unwrap_or(ClaimState::Waiting).name();
            broken.push(format!("was {state} and is opened again"));
        }
        if self.may_have_paid {
            broken.push("may have been paid and is opened again".into());
        }
        if generation != self.reopened + 2 {
            broken.push(format!("has generation {generation} after {}", self.reopened + 1));
        }
        *self = Self { reopened: self.reopened + 1, ..Self::default() };
        broken
    }
}

// === impl SolveSeen ===

impl SolveSeen {
    fn is_unpaid(&self) -> bool {
        self.accepted == 0 && self.ambiguous == 0
    }

    /// Whether an attempt is open whose reply nobody has, or was given up like that.
    fn may_have_lost_money(&self) -> bool {
        let is_open = matches!(self.open, Open::Intent | Open::Ambiguous);
        is_open || self.gave_up_open || (self.authorised > 0 && !self.ready)
    }

    /// Applies an event of the solve and returns the invariants it breaks.
    fn apply(&mut self, event: &Event) -> Vec<(u8, String)> {
        let mut broken = Vec::new();
        match event {
            Event::Intent { attempt, fence, .. } => self.intent(*attempt, *fence, &mut broken),
            Event::Recovered { fence, .. } => self.fenced(*fence, true, &mut broken),
            Event::Authorised { fence, .. } => {
                self.fenced(*fence, false, &mut broken);
                self.authorised += 1;
                if self.open != Open::Ambiguous || self.authorised > 1 {
                    broken.push((4, "authorised what was not ambiguous, or twice".into()));
                }
                self.open = Open::Nothing;
            }
            Event::Accepted { attempt, .. } => self.accepted(*attempt, &mut broken),
            Event::Ambiguous { .. } => {
                self.open = Open::Ambiguous;
                self.ambiguous += 1;
            }
            Event::NotAccepted { .. } => self.open = Open::Nothing,
            Event::WrittenOff { .. } | Event::Failed { .. } => {
                self.gave_up_open |= matches!(self.open, Open::Intent | Open::Ambiguous);
                self.open = Open::Nothing;
            }
            Event::TaskOver { .. } => {
                self.over += 1;
                self.open = Open::Nothing;
            }
            Event::Ready { .. } => {
                self.gave_up_open = false;
                if std::mem::replace(&mut self.ready, true) {
                    broken.push((13, "ready twice".into()));
                }
                self.open = Open::Nothing;
            }
            Event::DeadLettered { .. } => {
                // Claims that still wait when their dead letter is purged leave another one.
                match self.purged {
                    0 => self.dead_letters += 1,
                    _ => self.purged -= 1,
                }
                if self.dead_letters > 1 {
                    broken.push((19, "two dead letters".into()));
                }
            }
            Event::Purged { .. } => self.purged += 1,
            _ => {}
        }
        broken
    }

    fn intent(&mut self, attempt: u32, fence: Fence, broken: &mut Vec<(u8, String)>) {
        self.fenced(fence, false, broken);
        if attempt != self.attempt + 1 {
            broken.push((1, format!("intent {attempt} follows {}", self.attempt)));
        }
        if self.open != Open::Nothing {
            broken.push((4, format!("intent {attempt} while the last attempt is {:?}", self.open)));
        }
        if self.ready {
            broken.push((13, "intent after ready".into()));
        }
        self.attempt = attempt;
        self.open = Open::Intent;
    }

    fn accepted(&mut self, attempt: u32, broken: &mut Vec<(u8, String)>) {
        self.accepted += 1;
        self.open = Open::Task;
        if attempt != self.attempt {
            broken.push((1, format!("accepted {attempt} while {} is the attempt", self.attempt)));
        }
        let Self { accepted, over, authorised, .. } = *self;
        if accepted > 1 + over + authorised {
            broken.push((3, format!("{accepted} tasks, {over} ended, {authorised} authorised")));
        }
    }

    fn fenced(&mut self, fence: Fence, rises: bool, broken: &mut Vec<(u8, String)>) {
        if fence < self.fence || (rises && fence == self.fence) {
            broken.push((12, format!("fence {fence} after {}", self.fence)));
        }
        self.fence = self.fence.max(fence);
    }
}
