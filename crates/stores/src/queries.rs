//! The queries of the `Records` port, written once for all backends.

use std::collections::BTreeSet;

use domain::{
    budget::{BudgetBook, BudgetScope},
    claim::Claim,
    dead_letter::DeadLetter,
    id::{ClaimId, SolveId, WorkerName},
    ledger::{Entry, Event, Total},
    ports::{
        ActiveSolve, ArchiveBatch, ClaimFilter, Cursor, DaySpending, DeadLetterFilter,
        LearnedMargin, Paged, PoolState, Scope, TotalsFilter,
    },
    site::PageUrl,
    solve::Solve,
    time::{Day, Timestamp},
};

use crate::{
    Result,
    adapter::REGISTERED_KEYS,
    decisions::support::{budgets, ledger, pools},
    schema::keys::{Key, Text, all, starting_with},
    schema::tables::{
        Authorised, BySitekey, ByTime, ByWorker, Claims, DeadLetters, Died, Free, Held, Margins,
        Memos, Pages, Pools, Solves, Subject, Totals, Waiting,
    },
    tx::{Order, ReadTx, TypedRead},
};

/// The most records that one call reads. A page that stops here says where to continue.
const SCAN_LIMIT: usize = 20_000;
/// The most index rows that one scan reads.
const CHUNK: usize = 256;
const MEMO_LIMIT: usize = 1000;
/// A worker's list of active solves reads so many solves of all workers. If there are more, it reads its own claims instead.
const FOREIGN_SOLVES: usize = 2000;
const OWN_CLAIMS: usize = 3000;

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
    let matches = |letter: &DeadLetter| dead_letter_matches(filter, letter);
    let mut found = page(filter.from, filter.limit, index, read, matches)?;
    for letter in &mut found.items {
        keep_visible(tx, &filter.scope, &mut letter.claims)?;
    }
    Ok(found)
}

/// One page of records, found through an index. A cursor names the last record of the page, or the moment up to which was read
/// without finding a full page: never a record that the caller may not see.
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
    let mut last_read = Timestamp::most();
    // Most pages are the newest records, plus one that shows that there are more. A server sends every row of a scan, so the
    // first scan is no larger than that.
    let mut size = limit.saturating_add(1).min(CHUNK);
    while let Some(cursor) = start {
        let rows = index(cursor, size)?;
        let Some(&(at, id)) = rows.last() else { break };
        start = if rows.len() < size { None } else { before(Cursor { at, id }) };
        size = (2 * size).min(CHUNK);
        for (at, id) in rows {
            if items.len() == limit {
                return Ok(Paged { items, next });
            }
            if seen >= SCAN_LIMIT && at != last_read {
                return Ok(Paged { items, next: Some(Cursor { at: last_read, id: 0 }) });
            }
            (seen, last_read) = (seen + 1, at);
            if let Some(item) = read(id)?.filter(|item| matches(item)) {
                next = Some(Cursor { at, id });
                items.push(item);
            }
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
    let newest = (from.at, ClaimId::from_number(from.id));
    let newest = filter.until.map_or(newest, |until| newest.min((until, Key::most())));
    let oldest = (filter.since.unwrap_or_default(), ClaimId::least());
    if oldest > newest {
        return Ok(Vec::new());
    }
    let named = |name: &str| {
        let text = Text::new(name);
        (text.clone(), oldest.0, oldest.1)..=(text, newest.0, newest.1)
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
    let rows = tx.scan::<ByTime>(oldest..=newest, Order::Falling, size)?;
    Ok(rows.into_iter().map(|((at, id), ())| (at, id.number())).collect())
}

fn claim_matches(filter: &ClaimFilter, claim: &Claim) -> bool {
    sees(&filter.scope, &claim.worker)
        && filter.sitekey.as_ref().is_none_or(|key| claim.sitekey.as_ref() == Some(key))
        && filter.kind.as_ref().is_none_or(|kind| *kind == claim.kind)
        && filter.state.is_none_or(|state| state == claim.state)
        && filter.project.as_ref().is_none_or(|project| *project == claim.project)
        && filter.code.as_ref().is_none_or(|code| claim.code.as_ref() == Some(code))
}

fn dead_letter_matches(filter: &DeadLetterFilter, letter: &DeadLetter) -> bool {
    sees(&filter.scope, &letter.worker)
        && filter.class.is_none_or(|class| class == letter.class)
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
    let most = match scope {
        Scope::All => SCAN_LIMIT,
        Scope::Worker(_) => FOREIGN_SOLVES,
    };
    let mut ids = unfinished(tx, most)?;
    if let Scope::Worker(worker) = scope
        && ids.len() > most
    {
        ids = solves_of_claims(tx, worker)?;
    }
    let mut found = Vec::new();
    for id in ids {
        let is_shown = |solve: &Solve| !solve.stage.is_final() && sees(scope, &solve.worker);
        found.extend(tx.get::<Solves>(&id)?.filter(is_shown));
    }
    found.sort_unstable_by_key(|solve| std::cmp::Reverse((solve.opened_at, solve.id)));
    found.truncate(limit);
    for solve in &mut found {
        keep_visible(tx, scope, &mut solve.claims)?;
    }
    Ok(found.into_iter().map(active_solve).collect())
}

/// Up to `most` unfinished solves of all workers, and one more if there are more.
fn unfinished(tx: &dyn ReadTx, most: usize) -> Result<BTreeSet<SolveId>> {
    let held = tx.scan::<Held>(all(), Order::Rising, most + 1)?;
    let mut ids: BTreeSet<_> = held.into_iter().map(|((_, _, id), ())| id).collect();
    let left = (most + 1).saturating_sub(ids.len());
    let free = tx.scan::<Free>(all(), Order::Rising, left)?;
    ids.extend(free.into_iter().map(|((_, id), ())| id));
    Ok(ids)
}

/// The solves of a worker's newest claims.
fn solves_of_claims(tx: &dyn ReadTx, worker: &WorkerName) -> Result<BTreeSet<SolveId>> {
    let own = starting_with(Text::new(worker.as_str()));
    let rows = tx.scan::<ByWorker>(own, Order::Falling, OWN_CLAIMS)?;
    let mut ids = BTreeSet::new();
    for ((_, _, id), ()) in rows {
        ids.extend(tx.get::<Claims>(&id)?.and_then(|claim| claim.solve));
    }
    Ok(ids)
}

/// Drops the claims of other workers: equal pictures of several workers wait for one solve.
fn keep_visible(tx: &dyn ReadTx, scope: &Scope, claims: &mut Vec<ClaimId>) -> Result<()> {
    let Scope::Worker(own) = scope else { return Ok(()) };
    let mut kept = Vec::new();
    for id in claims.drain(..) {
        if tx.get::<Claims>(&id)?.is_some_and(|claim| claim.worker == *own) {
            kept.push(id);
        }
    }
    *claims = kept;
    Ok(())
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
        reserved: solve.reservations.open,
    }
}

/// The totals of a range of days. A label begins with the worker, so a worker's rows of a day are neighbours and the rows of
/// others are not read.
pub(crate) fn totals(tx: &dyn ReadTx, request: &TotalsFilter) -> Result<Vec<Total>> {
    let Scope::Worker(worker) = &request.scope else {
        return totals_between(
            tx,
            (request.from, Text::least()),
            (day_after(request.to), Text::least()),
        );
    };
    let own = ledger::label_of_worker(worker);
    let mut totals = Vec::new();
    for day in request.from.number()..=request.to.number() {
        let day = Day::from_number(day);
        totals.extend(totals_between(tx, (day, Text::new(&own)), (day, Text::after(&own)))?);
    }
    Ok(totals)
}

fn totals_between(tx: &dyn ReadTx, least: (Day, Text), most: (Day, Text)) -> Result<Vec<Total>> {
    let rows = tx.scan::<Totals>(least..=most, Order::Rising, usize::MAX)?;
    Ok(ledger::sums_of_lanes(rows.into_iter().map(|(_, total)| total)))
}

fn day_after(day: Day) -> Day {
    Day::from_number(day.number().saturating_add(1))
}

/// What a day and its month have used of the budgets.
pub(crate) fn spending(tx: &dyn ReadTx, day: Day) -> Result<DaySpending> {
    let mut books = budgets::books(tx, day)?;
    if !books.contains_key(&BudgetScope::Account) {
        let mut account = BudgetBook::default();
        for book in books.values() {
            account.add_bought(book);
        }
        books.insert(BudgetScope::Account, account);
    }
    Ok(DaySpending { day, books, authorised: tx.get::<Authorised>(&day)?.unwrap_or(0) })
}

/// Everything that happened to a claim, to the solve it waited for and to the solve that paid for its token.
pub(crate) fn explain(tx: &dyn ReadTx, id: ClaimId) -> Result<Vec<Entry>> {
    let mut subjects = vec![Subject::Claim(id)];
    if let Some(claim) = tx.get::<Claims>(&id)? {
        let paid_by = claim.token.map(|token| token.solve);
        subjects.extend(claim.solve.map(Subject::Solve));
        subjects.extend(paid_by.filter(|paid| Some(*paid) != claim.solve).map(Subject::Solve));
        if claim.reopened > 0 {
            subjects.extend(solves_of_generations(tx, id)?);
            subjects.sort_unstable();
            subjects.dedup();
        }
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
        entries.extend(page.entries.into_iter().filter(is_about));
    }
    Ok(entries)
}

/// The solves that the claim waited for in any of its generations.
fn solves_of_generations(tx: &dyn ReadTx, id: ClaimId) -> Result<Vec<Subject>> {
    let mut solves = Vec::new();
    for seq in ledger::pages_about(tx, Subject::Claim(id), 0, SCAN_LIMIT)? {
        let page = tx.get::<Pages>(&seq)?.unwrap_or_default();
        let own = page.entries.iter().filter(|entry| entry.claim == Some(id));
        solves.extend(own.filter_map(|entry| entry.solve).map(Subject::Solve));
    }
    Ok(solves)
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
    // Of whole days, because repeated answers change totals without an entry.
    let days: BTreeSet<Day> = batch.entries.iter().map(|entry| entry.at.day()).collect();
    for day in days {
        batch.totals.extend(totals(tx, &TotalsFilter { scope: Scope::All, from: day, to: day })?);
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

#[cfg(test)]
mod tests;
