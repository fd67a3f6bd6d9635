//! Revives or purges dead letters, one or many, at a chosen rate. A revived dead letter comes in like a claim, so the guard
//! has to allow it now, whatever was declared when it died.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    actor::Actor,
    challenge::Challenge,
    claim::{Admission, Allowance},
    dead_letter::{Closing, DeadLetter},
    declarations::{SiteRefusal, Terms},
    id::{ClaimId, SolveId, WorkerName},
    ledger::Event,
    money::Money,
    ports::{Cursor, DeadLetterFilter, Note, Revival, ReviveRequest, StoreError},
    retry::own,
    solve::Policy,
    time::Timestamp,
};

use crate::{Engine, Shared, Slots};

#[derive(Clone, Debug)]
pub struct BulkRequest {
    pub which: DeadLetterSelection,
    /// Who requests it, for the audit trail.
    pub by: Actor,
    /// Dead letters a second.
    pub rate: u32,
    /// Only report what would be done.
    pub dry_run: bool,
    /// The budgets of all configured workers. A dead letter of another worker is not revived.
    pub allowances: BTreeMap<WorkerName, Allowance>,
}

#[derive(Clone, Debug)]
pub enum DeadLetterSelection {
    Ids(Vec<SolveId>),
    /// All that match, newest first, from the filter's cursor on.
    Matching(DeadLetterFilter),
}

/// What one call has done.
#[derive(Clone, Debug, Default)]
pub struct BulkReport {
    pub items: Vec<(SolveId, Revived)>,
    /// Where to go on, if the time was up before the end of the list.
    pub next: Option<Cursor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revived {
    Opened(ClaimId),
    Joined(ClaimId),
    Stocked(ClaimId),
    /// An equal one was revived before; this is that claim.
    Replayed(ClaimId),
    /// A dry run: it would be revived.
    Would,
    /// It was already closed, in this way.
    Closed(Closing),
    Unknown,
    /// It may not be revived, for this reason.
    Refused(String),
}

/// One call works for at most this long.
const WORK_FOR: Duration = Duration::from_secs(20);
const PAGE: usize = 200;
/// Nobody waits for a revived claim, so it may wait its turn for a day.
const REVIVED_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// While the queue is half full, revival pauses and checks again after this.
const ROOM_CHECK: Duration = Duration::from_millis(200);

impl Engine {
    /// Revives dead letters until the end of the list or of the time for one call.
    pub async fn revive(&self, request: &BulkRequest) -> Result<BulkReport, StoreError> {
        let shared = &*self.0;
        let ids = match &request.which {
            DeadLetterSelection::Ids(ids) => ids,
            DeadLetterSelection::Matching(filter) => {
                return revive_matching(shared, request, filter).await;
            }
        };
        let mut report = BulkReport::default();
        for id in ids {
            let revived = match shared.ports.records.dead_letter(*id).await? {
                Some(letter) => revive_one(shared, request, &letter).await?,
                None => Revived::Unknown,
            };
            report.items.push((*id, revived));
        }
        Ok(report)
    }

    /// Purges dead letters; returns how many, and where to go on if the time for one call was up.
    pub async fn purge(
        &self,
        request: &BulkRequest,
    ) -> Result<(usize, Option<Cursor>), StoreError> {
        let ids = match &request.which {
            DeadLetterSelection::Ids(ids) => ids,
            DeadLetterSelection::Matching(filter) => {
                return purge_matching(&self.0, request, filter).await;
            }
        };
        let mut purged = 0;
        for id in ids {
            purged += usize::from(purge_one(&self.0, request, *id).await?);
        }
        Ok((purged, None))
    }
}

async fn revive_matching(
    shared: &Shared,
    request: &BulkRequest,
    filter: &DeadLetterFilter,
) -> Result<BulkReport, StoreError> {
    let until = shared.now().plus(WORK_FOR);
    let mut report = BulkReport::default();
    let mut filter = DeadLetterFilter { limit: PAGE, closed: false, ..filter.clone() };
    loop {
        let page = shared.ports.records.dead_letters(filter.clone()).await?;
        for letter in &page.items {
            let has_room = request.dry_run || wait_for_room(shared, until).await;
            if !report.items.is_empty() && (!has_room || shared.now() >= until) {
                report.next = filter.from;
                return Ok(report);
            }
            let revived = revive_one(shared, request, letter).await?;
            report.items.push((letter.id, revived));
            filter.from = Some(Cursor { at: letter.died_at, id: letter.id.number() });
        }
        let Some(next) = page.next else { return Ok(report) };
        filter.from = Some(next);
    }
}

async fn purge_matching(
    shared: &Shared,
    request: &BulkRequest,
    filter: &DeadLetterFilter,
) -> Result<(usize, Option<Cursor>), StoreError> {
    let until = shared.now().plus(WORK_FOR);
    let mut purged = 0;
    let mut filter = DeadLetterFilter { limit: PAGE, ..filter.clone() };
    loop {
        let page = shared.ports.records.dead_letters(filter.clone()).await?;
        for letter in &page.items {
            purged += usize::from(purge_one(shared, request, letter.id).await?);
        }
        let Some(next) = page.next else { return Ok((purged, None)) };
        filter.from = Some(next);
        if shared.now() >= until {
            return Ok((purged, Some(next)));
        }
    }
}

/// Waits until the queue has room for revived work beside live claims; `false` if it has none by `until`.
async fn wait_for_room(shared: &Shared, until: Timestamp) -> bool {
    // Without slots this process drives nothing: another one has the queue.
    while shared.config.slots != Slots::Fixed(0)
        && shared.scheduler.queued() >= shared.config.most_queued / 2
    {
        if shared.now() >= until {
            return false;
        }
        shared.ports.clock.sleep_until(shared.now().plus(ROOM_CHECK)).await;
    }
    true
}

async fn revive_one(
    shared: &Shared,
    request: &BulkRequest,
    letter: &DeadLetter,
) -> Result<Revived, StoreError> {
    if let Some(closed) = &letter.closed {
        return Ok(Revived::Closed(closed.how));
    }
    let Some(challenge) = shared.ports.store.find_challenge(letter.id).await? else {
        return Ok(Revived::Unknown);
    };
    let workers = workers_of(shared, letter).await?;
    let permitted = match permitted(shared, request, (letter, &workers), &challenge) {
        Ok(permitted) if permitted.allowances.is_empty() => return Ok(Revived::disowned()),
        Ok(permitted) => permitted,
        Err(refusal) => return refuse(shared, request, letter, &refusal).await,
    };
    if request.dry_run {
        return Ok(Revived::Would);
    }
    let revival = write_revival(shared, request, letter, permitted).await?;
    shared.scheduler.wake();
    // The pause follows each one, so that the rate also holds across calls.
    let gap = Duration::from_secs(1) / request.rate.max(1);
    shared.ports.clock.sleep_until(shared.now().plus(gap)).await;
    Ok(Revived::of(revival))
}

/// The terms of a revival, and the workers whose claims may come back.
struct Permitted {
    terms: Terms,
    allowances: BTreeMap<WorkerName, Allowance>,
    price: Option<Money>,
}

/// The workers of the claims that failed with the solve.
async fn workers_of(shared: &Shared, letter: &DeadLetter) -> Result<Vec<WorkerName>, StoreError> {
    let mut workers = vec![letter.worker.clone()];
    for id in &letter.claims {
        let claim = shared.ports.store.find_claim(*id).await?;
        workers.extend(claim.map(|claim| claim.worker).filter(|worker| !workers.contains(worker)));
    }
    Ok(workers)
}

/// The guard may allow the challenge for some of the workers only; the claims of the others stay dead.
fn permitted(
    shared: &Shared,
    request: &BulkRequest,
    (letter, workers): (&DeadLetter, &[WorkerName]),
    challenge: &Challenge,
) -> Result<Permitted, SiteRefusal> {
    let (declared, now) = (shared.declarations(), shared.now());
    let mut terms = declared.check(challenge, &letter.worker, now);
    let mut allowances = BTreeMap::new();
    for worker in workers {
        if let Ok(granted) = declared.check(challenge, worker, now) {
            terms = terms.or(Ok(granted));
            let allowance = request.allowances.get(worker);
            allowances.extend(allowance.map(|allowance| (worker.clone(), *allowance)));
        }
    }
    let price = shared.price_of(challenge);
    Ok(Permitted { terms: terms?, allowances, price })
}

async fn write_revival(
    shared: &Shared,
    request: &BulkRequest,
    letter: &DeadLetter,
    permitted: Permitted,
) -> Result<Revival, StoreError> {
    let (chance, config) = (&*shared.ports.chance, &shared.config);
    let Permitted { terms, allowances, price } = permitted;
    loop {
        let ambiguity_budget = config.ambiguity_budget;
        let revive = ReviveRequest {
            letter: letter.id,
            by: request.by.clone(),
            claims: letter.claims.iter().map(|_| ClaimId::draw(chance)).collect(),
            solve: SolveId::draw(chance),
            basis: Arc::clone(&terms.basis),
            deadline: shared.now().plus(REVIVED_DEADLINE),
            price,
            allowances: allowances.clone(),
            account: shared.budgets().account,
            policy: Policy { ambiguous: terms.ambiguous, ambiguity_budget },
        };
        let revival = shared.ports.store.revive(revive, shared.now()).await?;
        if !matches!(revival, Revival::Back(Admission::NameTaken)) {
            return Ok(revival);
        }
    }
}

async fn refuse(
    shared: &Shared,
    request: &BulkRequest,
    letter: &DeadLetter,
    refusal: &SiteRefusal,
) -> Result<Revived, StoreError> {
    if !request.dry_run {
        let (code, pageurl) = (own::SITE_NOT_DECLARED.into(), letter.pageurl.clone());
        let note = Note {
            claim: letter.claims.first().copied(),
            worker: letter.worker.clone(),
            project: letter.project.clone(),
            kind: Some(letter.kind.clone()),
            event: Event::Refused { code, pageurl },
            by: None,
        };
        shared.ports.store.note(note, shared.now()).await?;
    }
    Ok(Revived::Refused(refusal.to_string()))
}

async fn purge_one(
    shared: &Shared,
    request: &BulkRequest,
    id: SolveId,
) -> Result<bool, StoreError> {
    if request.dry_run {
        return Ok(shared.ports.records.dead_letter(id).await?.is_some());
    }
    shared.ports.store.purge(id, request.by.clone(), shared.now()).await
}

// === impl Revived ===

impl Revived {
    fn disowned() -> Self {
        Self::Refused("its worker is not configured; purge it, or add the worker".into())
    }

    fn of(revival: Revival) -> Self {
        match revival {
            // A revived claim is not started, but waits in the queue.
            Revival::Back(Admission::Opened(claim) | Admission::Started(claim, _)) => {
                Self::Opened(claim.id)
            }
            Revival::Back(Admission::Joined(claim)) => Self::Joined(claim.id),
            Revival::Back(Admission::Stocked(claim)) => Self::Stocked(claim.id),
            Revival::Back(Admission::Replayed(claim)) => Self::Replayed(claim.id),
            Revival::Back(Admission::OverBudget(reached)) => {
                Self::Refused(format!("{reached}; retry then"))
            }
            Revival::Back(Admission::Mismatch(_) | Admission::TooLate | Admission::NameTaken) => {
                Self::Refused("its key now belongs to another claim".into())
            }
            Revival::Disowned => Self::disowned(),
            Revival::Closed(closed) => Self::Closed(closed.how),
            Revival::Unknown => Self::Unknown,
        }
    }
}
