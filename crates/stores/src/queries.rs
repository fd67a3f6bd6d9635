//! The queries of the `Records` port, written once for all backends.

use std::collections::BTreeSet;

use domain::{
    claim::Claim,
    dead_letter::DeadLetter,
    id::{ClaimId, SolveId, WorkerName},
    ledger::{Entry, Event, Total},
    ports::{
        ActiveSolve, ArchiveBatch, ClaimFilter, Cursor, DaySpending, DeadLetterFilter,
        LearnedMargin, Paged, PoolState, Scope, Spent, TotalsFilter,
    },
    site::PageUrl,
    solve::Solve,
    time::{Day, Timestamp},
};

use crate::{
    Result,
    adapter::REGISTERED_KEYS,
    decisions::support::{ledger, pools},
    schema::keys::{CompoundKey, Key, Text, all, starting_with},
    schema::tables::{
        Authorised, BySitekey, ByTime, ByWorker, Claims, DeadLetters, Died, Free, Held, Margins,
        Memos, Pages, Pools, Solves, Spending, Subject, Totals, Waiting,
    },
    tx::{Order, ReadTx, TypedRead},
};

/// The most records that one call reads. A page that stops here says where to continue.
const SCAN_LIMIT: usize = 20_000;
/// The most index rows that one scan reads.
const CHUNK: usize = 256;
const MEMO_LIMIT: usize = 1000;

/// Index rows: the time and the id of a record.
type DatedIds = Vec<(Timestamp, u64)>;

/// The claims that match, newest first.
pub(crate) fn history(tx: &dyn ReadTx, filter: &ClaimFilter) -> Result<Paged<Claim>> {
    let index = |from: Cursor, size| claim_rows(tx, filter, from, size);
    let read = |id| tx.get::<Claims>(&ClaimId::from_number(id));
    page(filter.from, filter.limit, index, read, |claim| claim_matches(filter, claim))
}

/// The dead letters that match, newest first.
pub(crate) fn dead_letters(
    tx: &dyn ReadTx,
    filter: &DeadLetterFilter,
) -> Result<Paged<DeadLetter>> {
    let index = |from: Cursor, size| {
        let newest = (from.at, SolveId::from_number(from.id));
        let newest = filter.until.map_or(newest, |until| newest.min((until, SolveId::most())));
        let oldest = (filter.since.unwrap_or_default(), SolveId::least());
        let rows = tx.scan::<Died>(oldest..=newest, Order::Falling, size)?;
        Ok(rows.into_iter().map(|((at, id), ())| (at, id.number())).collect())
    };
    let read = |id| tx.get::<DeadLetters>(&SolveId::from_number(id));
    page(filter.from, filter.limit, index, read, |letter| dead_letter_matches(filter, letter))
}

/// One page of records, found through an index. A cursor names the last record that was read.
fn page<T>(
    from: Option<Cursor>,
    limit: usize,
    index: impl Fn(Cursor, usize) -> Result<DatedIds>,
    read: impl Fn(u64) -> Result<Option<T>>,
    matches: impl Fn(&T) -> bool,
) -> Result<Paged<T>> {
    let newest = Cursor { at: Timestamp::most(), id: u64::MAX };
    let mut start = match from {
        Some(last) => before(last),
        None => Some(newest),
    };
    let mut items = Vec::new();
    let (mut seen, mut next) = (0, None);
    // Most pages are the newest records, plus one that shows that there are more. A server sends every row of a scan, so the
    // first scan is no larger than that.
    let mut size = limit.saturating_add(1).min(CHUNK);
    while let Some(cursor) = start {
        let rows = index(cursor, size)?;
        let Some(&(at, id)) = rows.last() else { break };
        start = if rows.len() < size { None } else { before(Cursor { at, id }) };
        size = (2 * size).min(CHUNK);
        for (at, id) in rows {
            if items.len() == limit || seen == SCAN_LIMIT {
                return Ok(Paged { items, next });
            }
            seen += 1;
            let found = read(id)?.filter(|item| matches(item));
            // A full page continues after its last record, and one cut short after the last record read.
            if found.is_some() || seen == SCAN_LIMIT {
                next = Some(Cursor { at, id });
            }
            items.extend(found);
        }
    }
    Ok(Paged { items, next: None })
}

/// The next older position.
fn before(last: Cursor) -> Option<Cursor> {
    if let Some(id) = last.id.checked_sub(1) {
        return Some(Cursor { id, ..last });
    }
    let at = last.at.millis().checked_sub(1)?;
    Some(Cursor { at: Timestamp::from_millis(at), id: u64::MAX })
}

/// Rows of the narrowest index for the filter.
fn claim_rows(
    tx: &dyn ReadTx,
    filter: &ClaimFilter,
    from: Cursor,
    size: usize,
) -> Result<DatedIds> {
    let newest = ClaimId::from_number(from.id);
    let named = |name: &str| {
        let text = Text::new(name);
        CompoundKey::least_of(text.clone())..=(text, from.at, newest)
    };
    let dated = |rows: Vec<((Text, Timestamp, ClaimId), ())>| {
        rows.into_iter().map(|((_, at, id), ())| (at, id.number())).collect()
    };
    if let Some(sitekey) = &filter.sitekey {
        return tx.scan::<BySitekey>(named(sitekey), Order::Falling, size).map(dated);
    }
    if let Scope::Worker(worker) = &filter.scope {
        return tx.scan::<ByWorker>(named(worker.as_str()), Order::Falling, size).map(dated);
    }
    let rows = tx.scan::<ByTime>(Key::least()..=(from.at, newest), Order::Falling, size)?;
    Ok(rows.into_iter().map(|((at, id), ())| (at, id.number())).collect())
}

fn claim_matches(filter: &ClaimFilter, claim: &Claim) -> bool {
    sees(&filter.scope, &claim.worker)
        && filter.sitekey.as_ref().is_none_or(|key| claim.sitekey.as_ref() == Some(key))
        && filter.kind.as_ref().is_none_or(|kind| *kind == claim.kind)
        && filter.state.is_none_or(|state| state == claim.state)
        && filter.project.as_ref().is_none_or(|project| *project == claim.project)
}

fn dead_letter_matches(filter: &DeadLetterFilter, letter: &DeadLetter) -> bool {
    sees(&filter.scope, &letter.worker)
        && filter.code.as_ref().is_none_or(|code| *code == letter.code)
        && filter.kind.as_ref().is_none_or(|kind| *kind == letter.kind)
        && filter.project.as_ref().is_none_or(|project| *project == letter.project)
        && filter.host.as_ref().is_none_or(|host| is_on(host, letter.pageurl.as_deref()))
        && (filter.closed || letter.closed.is_none())
}

/// Whether the page is on the host. The page of a dead letter was made canonical when its claim was admitted.
fn is_on(host: &str, page: Option<&str>) -> bool {
    let page = page.and_then(|page| PageUrl::parse(page).ok());
    page.is_some_and(|page| page.host() == host)
}

fn sees(scope: &Scope, worker: &WorkerName) -> bool {
    match scope {
        Scope::All => true,
        Scope::Worker(own) => own == worker,
    }
}

/// The solves in progress, newest first.
pub(crate) fn active(tx: &dyn ReadTx, scope: &Scope, limit: usize) -> Result<Vec<ActiveSolve>> {
    let free = tx.scan::<Free>(all(), Order::Rising, SCAN_LIMIT)?;
    let held = tx.scan::<Held>(all(), Order::Rising, SCAN_LIMIT)?;
    let ids =
        held.into_iter().map(|((_, _, id), ())| id).chain(free.into_iter().map(|((_, id), ())| id));
    let mut found = Vec::new();
    for id in ids {
        found.extend(tx.get::<Solves>(&id)?.filter(|solve| sees(scope, &solve.worker)));
    }
    found.sort_unstable_by_key(|solve| std::cmp::Reverse((solve.opened_at, solve.id)));
    found.truncate(limit);
    Ok(found.into_iter().map(active_solve).collect())
}

fn active_solve(solve: Solve) -> ActiveSolve {
    ActiveSolve {
        id: solve.id,
        claims: solve.claims,
        worker: solve.worker,
        project: solve.project,
        kind: solve.kind,
        stage: solve.stage,
        attempt: solve.attempt,
        opened_at: solve.opened_at,
        due: solve.due,
        last_code: solve.failures.last().map(|failure| failure.code.clone()),
    }
}

/// The totals of a range of days.
pub(crate) fn totals(tx: &dyn ReadTx, request: &TotalsFilter) -> Result<Vec<Total>> {
    let after = Day::from_number(request.to.number().saturating_add(1));
    let range = (request.from, Text::least())..=(after, Text::least());
    let rows = tx.scan::<Totals>(range, Order::Rising, usize::MAX)?;
    let mine = rows.into_iter().map(|(_, total)| total);
    Ok(mine.filter(|total| sees(&request.scope, &total.worker)).collect())
}

/// How much of its budgets a day has used.
pub(crate) fn spending(tx: &dyn ReadTx, day: Day) -> Result<DaySpending> {
    let after = Day::from_number(day.number().saturating_add(1));
    let range = (day, Text::least())..=(after, Text::least());
    let rows = tx.scan::<Spending>(range, Order::Rising, usize::MAX)?;
    let named = |((_, name), spent): ((Day, Text), Spent)| {
        WorkerName::new(name.as_str()).ok().map(|worker| (worker, spent))
    };
    let authorised = tx.get::<Authorised>(&day)?.unwrap_or(0);
    Ok(DaySpending { workers: rows.into_iter().filter_map(named).collect(), authorised })
}

/// Everything that happened to a claim, to the solve it waited for and to the solve that paid for its token.
pub(crate) fn explain(tx: &dyn ReadTx, id: ClaimId) -> Result<Vec<Entry>> {
    let mut subjects = vec![Subject::Claim(id)];
    if let Some(claim) = tx.get::<Claims>(&id)? {
        let paid_by = claim.token.map(|token| token.solve);
        subjects.extend(claim.solve.map(Subject::Solve));
        subjects.extend(paid_by.filter(|paid| Some(*paid) != claim.solve).map(Subject::Solve));
    }
    let mut pages = Vec::new();
    for subject in &subjects {
        pages.extend(ledger::pages_about(tx, *subject, 0, SCAN_LIMIT)?);
    }
    pages.sort_unstable();
    pages.dedup();
    let mut entries = Vec::new();
    for seq in pages {
        let page = tx.get::<Pages>(&seq)?.unwrap_or_default();
        let is_about =
            |entry: &Entry| ledger::subject(entry).is_some_and(|s| subjects.contains(&s));
        entries.extend(page.into_iter().filter(is_about));
    }
    Ok(entries)
}

/// The ledger after an entry, with the records that its entries are about. When the ledger does not have the entry, the batch
/// starts at the beginning.
pub(crate) fn archive_batch(
    tx: &dyn ReadTx,
    after: Option<&Entry>,
    limit: usize,
) -> Result<ArchiveBatch> {
    let mut batch = ArchiveBatch { after: after.cloned(), ..ArchiveBatch::default() };
    batch.entries = match after {
        Some(last) => ledger::entries(tx, last.seq, limit + 1)?,
        None => ledger::entries(tx, 0, limit)?,
    };
    if let Some(last) = after {
        batch.from_start = batch.entries.first() != Some(last);
        if batch.from_start {
            batch.entries = ledger::entries(tx, 0, limit)?;
        } else {
            batch.entries.remove(0);
        }
    }
    let claims: BTreeSet<ClaimId> = batch.entries.iter().filter_map(|entry| entry.claim).collect();
    for id in claims {
        batch.claims.extend(tx.get::<Claims>(&id)?);
    }
    for id in dead_letter_ids(&batch.entries) {
        batch.dead_letters.extend(tx.get::<DeadLetters>(&id)?);
    }
    let days = batch.entries.iter().map(|entry| entry.at.day());
    if let (Some(from), Some(to)) = (days.clone().min(), days.max()) {
        batch.totals = totals(tx, &TotalsFilter { scope: Scope::All, from, to })?;
    }
    Ok(batch)
}

/// The dead letters that the entries may have changed.
fn dead_letter_ids(entries: &[Entry]) -> BTreeSet<SolveId> {
    let changes = |event: &Event| {
        matches!(
            event,
            Event::Failed { .. }
                | Event::Ended { .. }
                | Event::DeadLettered { .. }
                | Event::DeadLetterClosed
                | Event::DeadLetterReopened { .. }
                | Event::Revived { .. }
        )
    };
    entries.iter().filter(|entry| changes(&entry.event)).filter_map(|entry| entry.solve).collect()
}

/// The pools with their stock and demand.
pub(crate) fn pool_states(tx: &dyn ReadTx, now: Timestamp) -> Result<Vec<PoolState>> {
    let mut found = Vec::new();
    for (fingerprint, pool) in tx.scan::<Pools>(all(), Order::Rising, SCAN_LIMIT)? {
        let waiting = starting_with(fingerprint);
        found.push(PoolState {
            pool,
            stock: pools::usable(tx, fingerprint, now)?,
            coming: pools::coming(tx, fingerprint)?,
            waiting: tx.scan::<Waiting>(waiting, Order::Rising, SCAN_LIMIT)?.len(),
        });
    }
    Ok(found)
}

/// How early sites need their tokens, as learned from reports.
pub(crate) fn margins(tx: &dyn ReadTx) -> Result<Vec<LearnedMargin>> {
    let rows = tx.scan::<Margins>(all(), Order::Rising, SCAN_LIMIT)?;
    Ok(rows.into_iter().map(|(_, margin)| margin).collect())
}

/// The memos whose names begin with the prefix.
pub(crate) fn memos(tx: &dyn ReadTx, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let rows =
        tx.scan::<Memos>(Text::new(prefix)..=Text::after(prefix), Order::Rising, MEMO_LIMIT)?;
    // The store's own memos are not the engine's.
    let is_engines = |name: &Text| !name.as_str().starts_with(REGISTERED_KEYS);
    let rows = rows.into_iter().filter(|(name, _)| is_engines(name));
    Ok(rows.map(|(name, value)| (name.as_str().to_owned(), value)).collect())
}
