//! One decision under way: its tx, its moment, and the ledger entries and sums it leaves behind.

use domain::{
    challenge::Kind,
    claim::{Claim, ClaimState},
    dead_letter::DeadLetter,
    id::{ClaimId, Project, SolveId, WorkerName},
    ledger::{Counts, Entry, Event, Total},
    money::Money,
    ports::StoreError,
    solve::Solve,
    time::{Day, Timestamp},
};

use crate::{
    keys::Text,
    tables::{Pages, Stocked, Subject, Told, Totals},
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

/// One decision under way.
pub(super) struct Step<'a> {
    pub(super) tx: &'a mut dyn WriteTx,
    pub(super) now: Timestamp,
    /// Claims that reached their end.
    pub(super) ended: Vec<ClaimId>,
    told: Vec<Entry>,
    sums: Vec<(About, Counts)>,
}

/// Whom an entry is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) claim: Option<ClaimId>,
    pub(super) solve: Option<SolveId>,
    pub(super) worker: WorkerName,
    pub(super) project: Project,
    pub(super) kind: Option<Kind>,
}

// === impl Step ===

impl<'a> Step<'a> {
    pub(super) fn new(tx: &'a mut dyn WriteTx, now: Timestamp) -> Self {
        Self { tx, now, ended: Vec::new(), told: Vec::new(), sums: Vec::new() }
    }

    /// Writes an entry and counts what it says.
    pub(super) fn tell(&mut self, about: impl Into<About>, event: Event) {
        self.tell_with(about, event, Counts::default());
    }

    /// Writes an entry and counts what it says and `more`, which it does not say.
    pub(super) fn tell_with(&mut self, about: impl Into<About>, event: Event, more: Counts) {
        let about = about.into();
        let mut counts = counted(&event);
        counts.add(&more);
        let About { claim, solve, worker, project, kind } = about.clone();
        self.told.push(Entry { seq: 0, at: self.now, claim, solve, worker, project, kind, event });
        if counts != Counts::default() {
            self.sums.push((about, counts));
        }
    }

    pub(super) fn tell_all(&mut self, about: &Solve, events: Vec<Event>) {
        for event in events {
            self.tell(about, event);
        }
    }

    /// Writes the entries as one page, its index and the sums.
    pub(super) fn finish(mut self) -> Result<(), StoreError> {
        if self.told.is_empty() {
            return Ok(());
        }
        let mut seq = self.tx.last::<Pages>()?.unwrap_or(0);
        for entry in &mut self.told {
            seq += 1;
            entry.seq = seq;
        }
        for (about, counts) in std::mem::take(&mut self.sums) {
            self.count(&about, &counts)?;
        }
        write_page(self.tx, seq, self.told)
    }

    fn count(&mut self, about: &About, counts: &Counts) -> Result<(), StoreError> {
        // Sums are by kind; an entry about no challenge is in the ledger only.
        let Some(kind) = &about.kind else { return Ok(()) };
        let day = self.now.day();
        let (worker, project) = (about.worker.clone(), about.project.clone());
        let none = Total { day, worker, project, kind: kind.clone(), counts: Counts::default() };
        let key = total_key(&none);
        let mut total = self.tx.get::<Totals>(&key)?.unwrap_or(none);
        total.counts.add(counts);
        self.tx.put::<Totals>(key, total)
    }
}

/// Writes a page, whose entries have their numbers, and its index.
pub(super) fn write_page(
    tx: &mut dyn WriteTx,
    seq: u64,
    page: Vec<Entry>,
) -> Result<(), StoreError> {
    let mut subjects: Vec<Subject> = page.iter().filter_map(subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    for subject in subjects {
        tx.put::<Told>((subject, seq), ())?;
    }
    tx.put::<Pages>(seq, page)
}

/// Whether the ledger has an entry about a subject that says this.
pub(super) fn has_entry(
    tx: &dyn ReadTx,
    subject: Subject,
    says: impl Fn(&Entry) -> bool,
) -> Result<bool, StoreError> {
    let range = (subject, 0)..=(subject, u64::MAX);
    for ((_, seq), ()) in tx.scan::<Told>(range, Order::Rising, usize::MAX)? {
        if tx.get::<Pages>(&seq)?.unwrap_or_default().iter().any(&says) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the sums of a day, worker, project and kind are.
pub(super) fn total_key(total: &Total) -> (Day, Text) {
    let label = format!("{}/{}/{}", total.worker, total.project, total.kind);
    (total.day, Text::new(&label))
}

/// Entries about a claim are found by the claim alone, so that nobody reads of others who shared its solve.
pub(crate) fn subject(entry: &Entry) -> Option<Subject> {
    entry.claim.map(Subject::Claim).or(entry.solve.map(Subject::Solve))
}

// === impl About ===

impl From<&Claim> for About {
    fn from(claim: &Claim) -> Self {
        Self {
            claim: Some(claim.id),
            solve: claim.solve,
            worker: claim.worker.clone(),
            project: claim.project.clone(),
            kind: Some(claim.kind.clone()),
        }
    }
}

impl From<&Solve> for About {
    fn from(solve: &Solve) -> Self {
        Self {
            claim: None,
            solve: Some(solve.id),
            worker: solve.worker.clone(),
            project: solve.project.clone(),
            kind: Some(solve.kind.clone()),
        }
    }
}

impl From<&DeadLetter> for About {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            claim: None,
            solve: Some(letter.id),
            worker: letter.worker.clone(),
            project: letter.project.clone(),
            kind: Some(letter.kind.clone()),
        }
    }
}

impl From<&Stocked> for About {
    fn from(stocked: &Stocked) -> Self {
        Self {
            claim: None,
            solve: Some(stocked.token.solve),
            worker: stocked.worker.clone(),
            project: stocked.project.clone(),
            kind: Some(stocked.kind.clone()),
        }
    }
}

// === counting ===

/// What an event adds to the sums.
fn counted(event: &Event) -> Counts {
    let none = Counts::default();
    match event {
        Event::Opened { .. } => Counts { claims: 1, opened: 1, ..none },
        Event::Replayed => Counts { claims: 1, replayed: 1, ..none },
        Event::Joined => Counts { claims: 1, joined: 1, ..none },
        Event::Refused { .. } => Counts { refused: 1, ..none },
        Event::Ordered { .. } => Counts { ordered: 1, ..none },
        Event::Accepted { .. } | Event::Orphaned { .. } => Counts { attempts: 1, ..none },
        Event::Ambiguous { .. } => Counts { ambiguous: 1, ..none },
        // From here on nobody can say what the ambiguous attempt cost.
        Event::Authorised { .. } => Counts { authorised: 1, cost_unknown: 1, ..none },
        Event::WrittenOff { .. } => Counts { cost_unknown: 1, ..none },
        Event::TaskOver { cost, .. } => paid(*cost),
        Event::Ready { cost, .. } => Counts { solved: 1, ..paid(*cost) },
        Event::Wasted { .. } => Counts { wasted: 1, ..none },
        Event::Ended { state, .. } => match state {
            ClaimState::Failed | ClaimState::Lapsed => Counts { failed: 1, ..none },
            ClaimState::Withdrawn => Counts { withdrawn: 1, ..none },
            ClaimState::Waiting | ClaimState::Served => none,
        },
        Event::Intent { .. }
        | Event::NotAccepted { .. }
        | Event::Overdue { .. }
        | Event::Failed { .. }
        | Event::Recovered { .. }
        | Event::Allotted { .. }
        | Event::Banked { .. }
        | Event::Delivered { .. }
        | Event::DeadLettered { .. }
        | Event::DeadLetterClosed
        | Event::DeadLetterReopened { .. }
        | Event::Reported { .. }
        | Event::Revived { .. }
        | Event::Purged { .. }
        | Event::CalledBack { .. }
        | Event::CallbackDropped { .. } => none,
    }
}

fn paid(cost: Option<Money>) -> Counts {
    match cost {
        Some(cost) => Counts { cost, ..Counts::default() },
        None => Counts { cost_unknown: 1, ..Counts::default() },
    }
}
