//! Compares a day of the ledger with the provider's balance.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    id::{ClaimId, SolveId},
    ledger::Entry,
    money::Money,
    ports::StoreError,
    reconcile::{BooksVerdict, Collected, Collector, Item, Reconciliation},
    solve::{Origin, Solve},
    time::{Day, Timestamp},
};

use crate::{
    Engine, Shared,
    maintenance::balance::{self, ReadResult},
};

/// A reconciliation with the claims of its uncertain attempts.
#[derive(Debug)]
pub struct Reconciled {
    pub result: Reconciliation,
    pub items: Vec<ReconciledItem>,
    /// Why the balance could not be read now.
    pub unread: Option<String>,
    /// The account pays for threads. What attempts cost is then no charge, so the balance says nothing about it.
    pub under_plan: bool,
}

/// An attempt whose charge is uncertain.
#[derive(Debug)]
pub struct ReconciledItem {
    pub item: Item,
    /// The claim its solve was opened for.
    pub claim: Option<ClaimId>,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum ReconcileRefusal {
    #[error("{0} has not begun yet")]
    Future(Day),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How far around the day the ledger is read: attempts end within it, and balances are read more often.
const AROUND: Duration = Duration::from_secs(2 * 3600);
/// A balance this young is not read again for a reconciliation.
const LEAST_GAP: Duration = Duration::from_millis(250);
/// Entries that one call to the store reads.
const PAGE: usize = 1000;
/// How long the archive may take to copy the reading that was just written.
const ARCHIVED_WITHIN: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(500);

impl Engine {
    /// Reconciles a day. Of the current day the balance is read now. `top_up` is what was paid in on the day, if the operator
    /// says so.
    pub async fn reconcile(
        &self,
        day: Day,
        top_up: Option<Money>,
    ) -> Result<Reconciled, ReconcileRefusal> {
        let shared = &*self.0;
        let now = shared.now();
        if now < day.start() {
            return Err(ReconcileRefusal::Future(day));
        }
        let (mut unread, mut since) = (None, None);
        if now.day() == day {
            match read_now(shared).await? {
                ReadResult::Recorded | ReadResult::NotDue => since = Some(now),
                ReadResult::Unknown(why) => unread = Some(why),
            }
        }
        let collected = collect(shared, day, since).await?;
        let solves = solves(shared, &collected).await?;
        let prices: BTreeMap<_, _> = solves
            .iter()
            .filter_map(|(id, solve)| Some((*id, list_price(shared, solve)?)))
            .collect();
        let mut result = collected.judge(&prices, top_up);
        let items = std::mem::take(&mut result.items).into_iter().map(|item| {
            let claim = solves.get(&item.solve).and_then(claim_of);
            ReconciledItem { item, claim }
        });
        let items = items.collect();
        let under_plan = shared.config.prices.plan.is_some();
        if under_plan {
            leave_unjudged(&mut result);
        }
        Ok(Reconciled { result, items, unread, under_plan })
    }
}

/// Takes the verdicts back.
fn leave_unjudged(result: &mut Reconciliation) {
    result.verdict = BooksVerdict::CannotBeJudged;
    for segment in &mut result.segments {
        segment.verdict = BooksVerdict::CannotBeJudged;
    }
}

/// Reads the balance, unless operators have asked for it so often that the provider's quota of calls is used.
async fn read_now(shared: &Shared) -> Result<ReadResult, StoreError> {
    if !shared.poller.quota.take_spare() {
        let why = "the quota of calls to the provider is used; it grows with the next tasks";
        return Ok(ReadResult::Unknown(why.into()));
    }
    balance::read(shared, LEAST_GAP).await
}

/// Reads the ledger around the day. An archive may still lack the newest entries, so this waits a little for the reading
/// that was written `since`.
async fn collect(
    shared: &Shared,
    day: Day,
    since: Option<Timestamp>,
) -> Result<Collected, StoreError> {
    let give_up = shared.now().plus(ARCHIVED_WITHIN);
    loop {
        let collected = collect_once(shared, day).await?;
        let is_whole = since.is_none_or(|since| collected.ends_with_reading_since(since));
        if is_whole || shared.config.archive.is_none() || shared.now() >= give_up {
            return Ok(collected);
        }
        shared.ports.clock.sleep_until(shared.now().plus(RETRY)).await;
    }
}

async fn collect_once(shared: &Shared, day: Day) -> Result<Collected, StoreError> {
    let mut collector = Collector::new(day);
    let until = day.end().plus(AROUND);
    let mut next = first_entry_since(shared, day.start().minus(AROUND)).await?;
    loop {
        let entries = shared.ports.records.entries(next, PAGE).await?;
        for entry in entries.iter().take_while(|entry| entry.at < until) {
            collector.add(entry);
        }
        match entries.last() {
            Some(last) if last.at < until => next = last.seq + 1,
            Some(_) | None => return Ok(collector.finish()),
        }
    }
}

/// The number of an entry shortly before the moment, or of the first one.
pub(crate) async fn first_entry_since(
    shared: &Shared,
    moment: Timestamp,
) -> Result<u64, StoreError> {
    let at = async |seq: u64| -> Result<Option<Entry>, StoreError> {
        Ok(shared.ports.records.entries(seq, 1).await?.pop())
    };
    let Some(first) = at(0).await? else { return Ok(0) };
    let (mut before, mut step) = (first.seq, 1024);
    let mut after = loop {
        match at(before + step).await? {
            Some(entry) if entry.at < moment => (before, step) = (entry.seq, step * 2),
            Some(_) | None => break before + step,
        }
    };
    while before + 1 < after {
        let middle = before + (after - before) / 2;
        match at(middle).await? {
            Some(entry) if entry.at < moment => before = entry.seq.min(after - 1).max(middle),
            Some(_) | None => after = middle,
        }
    }
    Ok(before)
}

/// The solves whose price or claim is needed, as far as the store still has them.
async fn solves(
    shared: &Shared,
    collected: &Collected,
) -> Result<BTreeMap<SolveId, Solve>, StoreError> {
    let mut solves = BTreeMap::new();
    for id in collected.unpriced_solves() {
        if let Some(solve) = shared.ports.store.find_solve(id).await? {
            solves.insert(id, solve);
        }
    }
    Ok(solves)
}

fn list_price(shared: &Shared, solve: &Solve) -> Option<Money> {
    solve.price.or_else(|| shared.config.prices.of_kind(&solve.kind))
}

fn claim_of(solve: &Solve) -> Option<ClaimId> {
    match solve.origin {
        Origin::Claim(claim) | Origin::Revived { claim, .. } => Some(claim),
        Origin::Orphan(_) | Origin::Refill => solve.claims.first().copied(),
    }
}
