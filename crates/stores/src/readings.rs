//! Every reading of the `Records` port, written once on top of a tx. Nothing here decides anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use domain::{
    claim::Claim,
    dead_letter::DeadLetter,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, SolveId, WorkerName},
    ledger::{Entry, Event, Total},
    ports::{
        ActiveSolve, ClaimFilter, Cursor, DaySpending, DeadLetterFilter, LearnedMargin, Lot, Paged,
        PoolState, Scope, Spent, StockLevel, StoreError, TotalsAsk,
    },
    site::PageUrl,
    solve::Solve,
    time::{Day, Timestamp},
    token::MIN_LEFT,
};

use crate::{
    keys::Text,
    tables::{
        Authorised, BySitekey, ByTime, ByWorker, Claims, DeadLetters, Died, Free, Held, Margins,
        Pages, Pools, Solves, Spending, Stock, Subject, Told, Totals, Waiting,
    },
    tx::{Order, ReadTx, TypedRead},
};

/// One call looks at no more records than this; a short page says where to go on.
const MOST_SEEN: usize = 20_000;
/// Rows of an index looked at together, at most.
const LOT: usize = 256;

/// Rows of an index: when, and whose.
type Dated = Vec<(Timestamp, u64)>;

/// Claims that match, newest first.
pub(crate) fn history(tx: &dyn ReadTx, filter: &ClaimFilter) -> Result<Paged<Claim>, StoreError> {
    let lot = |from: Cursor, size| claim_rows(tx, filter, from, size);
    let read = |id| tx.get::<Claims>(&ClaimId::from_number(id));
    page(filter.from, filter.limit, lot, read, |claim| claim_matches(filter, claim))
}

/// Dead letters that match, newest first.
pub(crate) fn dead_letters(
    tx: &dyn ReadTx,
    filter: &DeadLetterFilter,
) -> Result<Paged<DeadLetter>, StoreError> {
    let lot = |from: Cursor, size| {
        let edge = |at, n| (at, SolveId::from_number(n));
        let newest = filter.until.map_or(edge(from.at, from.id), |until| {
            edge(from.at, from.id).min(edge(until, u64::MAX))
        });
        let range = edge(filter.since.unwrap_or_default(), 0)..=newest;
        let rows = tx.scan::<Died>(range, Order::Falling, size)?;
        Ok(rows.into_iter().map(|((at, id), ())| (at, id.number())).collect())
    };
    let read = |id| tx.get::<DeadLetters>(&SolveId::from_number(id));
    page(filter.from, filter.limit, lot, read, |letter| letter_matches(filter, letter))
}

/// One page of records found through an index. A cursor names the last record looked at.
fn page<T>(
    from: Option<Cursor>,
    limit: usize,
    lot: impl Fn(Cursor, usize) -> Result<Dated, StoreError>,
    read: impl Fn(u64) -> Result<Option<T>, StoreError>,
    matches: impl Fn(&T) -> bool,
) -> Result<Paged<T>, StoreError> {
    let newest = Cursor { at: Timestamp::from_millis(u64::MAX), id: u64::MAX };
    let mut start = match from {
        Some(last) => before(last),
        None => Some(newest),
    };
    let mut items = Vec::new();
    let (mut seen, mut shown) = (0, None);
    // Mostly the newest are the page, and one more says that it goes on. On a server every row of a lot is fetched.
    let mut size = limit.saturating_add(1).min(LOT);
    while let Some(cursor) = start {
        let rows = lot(cursor, size)?;
        let Some(&(at, id)) = rows.last() else { break };
        start = if rows.len() < size { None } else { before(Cursor { at, id }) };
        size = (2 * size).min(LOT);
        for (at, id) in rows {
            if items.len() == limit || seen == MOST_SEEN {
                return Ok(Paged { items, next: shown });
            }
            seen += 1;
            let found = read(id)?.filter(|item| matches(item));
            // A page that is full goes on after its last record; one cut short, after the last it looked at.
            if found.is_some() || seen == MOST_SEEN {
                shown = Some(Cursor { at, id });
            }
            items.extend(found);
        }
    }
    Ok(Paged { items, next: None })
}

/// The place just before a record, newest first.
fn before(last: Cursor) -> Option<Cursor> {
    if let Some(id) = last.id.checked_sub(1) {
        return Some(Cursor { id, ..last });
    }
    let at = last.at.millis().checked_sub(1)?;
    Some(Cursor { at: Timestamp::from_millis(at), id: u64::MAX })
}

/// The narrowest index there is for the filter.
fn claim_rows(
    tx: &dyn ReadTx,
    filter: &ClaimFilter,
    from: Cursor,
    size: usize,
) -> Result<Dated, StoreError> {
    let (oldest, newest) = ((Timestamp::default(), ClaimId::from_number(0)), edge_of(from));
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

fn edge_of(from: Cursor) -> (Timestamp, ClaimId) {
    (from.at, ClaimId::from_number(from.id))
}

fn claim_matches(filter: &ClaimFilter, claim: &Claim) -> bool {
    sees(&filter.scope, &claim.worker)
        && filter.sitekey.as_ref().is_none_or(|key| claim.sitekey.as_ref() == Some(key))
        && filter.kind.as_ref().is_none_or(|kind| *kind == claim.kind)
        && filter.state.is_none_or(|state| state == claim.state)
        && filter.project.as_ref().is_none_or(|project| *project == claim.project)
}

fn letter_matches(filter: &DeadLetterFilter, letter: &DeadLetter) -> bool {
    sees(&filter.scope, &letter.worker)
        && filter.code.as_ref().is_none_or(|code| *code == letter.code)
        && filter.kind.as_ref().is_none_or(|kind| *kind == letter.kind)
        && filter.project.as_ref().is_none_or(|project| *project == letter.project)
        && filter.host.as_ref().is_none_or(|host| is_on(host, letter.pageurl.as_deref()))
        && (filter.closed || letter.closed.is_none())
}

/// Whether the page is on the host. A letter's page was canonical when its claim came in.
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

/// Solves under way, newest first.
pub(crate) fn active(
    tx: &dyn ReadTx,
    scope: &Scope,
    limit: usize,
) -> Result<Vec<ActiveSolve>, StoreError> {
    let number = |n| (Timestamp::from_millis(n), SolveId::from_number(n));
    let held = |n| (HolderId::from_number(n), Timestamp::from_millis(n), SolveId::from_number(n));
    let free = tx.scan::<Free>(number(0)..=number(u64::MAX), Order::Rising, MOST_SEEN)?;
    let held = tx.scan::<Held>(held(0)..=held(u64::MAX), Order::Rising, MOST_SEEN)?;
    let ids =
        held.into_iter().map(|((_, _, id), ())| id).chain(free.into_iter().map(|((_, id), ())| id));
    let mut found = Vec::new();
    for id in ids {
        found.extend(tx.get::<Solves>(&id)?.filter(|solve| sees(scope, &solve.worker)));
    }
    found.sort_unstable_by_key(|solve| std::cmp::Reverse((solve.opened_at, solve.id)));
    found.truncate(limit);
    Ok(found.into_iter().map(shown).collect())
}

fn shown(solve: Solve) -> ActiveSolve {
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

/// Sums of the days asked for.
pub(crate) fn totals(tx: &dyn ReadTx, ask: &TotalsAsk) -> Result<Vec<Total>, StoreError> {
    let after = Day::from_number(ask.to.number().saturating_add(1));
    let range = (ask.from, Text::least())..=(after, Text::least());
    let rows = tx.scan::<Totals>(range, Order::Rising, usize::MAX)?;
    let mine = rows.into_iter().map(|(_, total)| total);
    Ok(mine.filter(|total| sees(&ask.scope, &total.worker)).collect())
}

/// What a day has used up of its budgets.
pub(crate) fn spending(tx: &dyn ReadTx, day: Day) -> Result<DaySpending, StoreError> {
    let after = Day::from_number(day.number().saturating_add(1));
    let range = (day, Text::least())..=(after, Text::least());
    let rows = tx.scan::<Spending>(range, Order::Rising, usize::MAX)?;
    let named = |((_, name), spent): ((Day, Text), Spent)| {
        WorkerName::new(name.as_str()).ok().map(|worker| (worker, spent))
    };
    let authorised = tx.get::<Authorised>(&day)?.unwrap_or(0);
    Ok(DaySpending { workers: rows.into_iter().filter_map(named).collect(), authorised })
}

/// Everything that happened to a claim, to the solve it waited for and to the one that paid for its token.
pub(crate) fn explain(tx: &dyn ReadTx, id: ClaimId) -> Result<Vec<Entry>, StoreError> {
    let mut subjects = vec![Subject::Claim(id)];
    if let Some(claim) = tx.get::<Claims>(&id)? {
        let paid_by = claim.token.map(|token| token.solve);
        subjects.extend(claim.solve.map(Subject::Solve));
        subjects.extend(paid_by.filter(|paid| Some(*paid) != claim.solve).map(Subject::Solve));
    }
    let mut pages = Vec::new();
    for subject in &subjects {
        let range = (*subject, 0)..=(*subject, u64::MAX);
        let rows = tx.scan::<Told>(range, Order::Rising, MOST_SEEN)?;
        pages.extend(rows.into_iter().map(|((_, seq), ())| seq));
    }
    pages.sort_unstable();
    pages.dedup();
    let mut entries = Vec::new();
    for seq in pages {
        let page = tx.get::<Pages>(&seq)?.unwrap_or_default();
        entries.extend(page.into_iter().filter(|entry| is_told_of(&subjects, entry)));
    }
    Ok(entries)
}

fn is_told_of(subjects: &[Subject], entry: &Entry) -> bool {
    crate::rules::subject(entry).is_some_and(|subject| subjects.contains(&subject))
}

/// The ledger from `from` on.
pub(crate) fn entries(tx: &dyn ReadTx, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
    // A page has at least one entry, so `limit` pages hold enough.
    let pages = tx.scan::<Pages>(from..=u64::MAX, Order::Rising, limit)?;
    let all = pages.into_iter().flat_map(|(_, page)| page);
    Ok(all.filter(|entry| entry.seq >= from).take(limit).collect())
}

/// The ledger after an entry, or from the beginning when it is not there, and what it is about.
pub(crate) fn lot(tx: &dyn ReadTx, after: Option<&Entry>, limit: usize) -> Result<Lot, StoreError> {
    let mut lot = Lot { after: after.cloned(), ..Lot::default() };
    lot.entries = match after {
        Some(last) => entries(tx, last.seq, limit + 1)?,
        None => entries(tx, 0, limit)?,
    };
    if let Some(last) = after {
        lot.is_anew = lot.entries.first() != Some(last);
        if lot.is_anew {
            lot.entries = entries(tx, 0, limit)?;
        } else {
            lot.entries.remove(0);
        }
    }
    let claims: BTreeSet<ClaimId> = lot.entries.iter().filter_map(|entry| entry.claim).collect();
    for id in claims {
        lot.claims.extend(tx.get::<Claims>(&id)?);
    }
    for id in buried(&lot.entries) {
        lot.letters.extend(tx.get::<DeadLetters>(&id)?);
    }
    let days = lot.entries.iter().map(|entry| entry.at.day());
    if let (Some(from), Some(to)) = (days.clone().min(), days.max()) {
        lot.totals = totals(tx, &TotalsAsk { scope: Scope::All, from, to })?;
    }
    Ok(lot)
}

/// Solves whose dead letters the entries may have changed.
fn buried(entries: &[Entry]) -> BTreeSet<SolveId> {
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

/// Pools and what they have.
pub(crate) fn pools(tx: &dyn ReadTx, now: Timestamp) -> Result<Vec<PoolState>, StoreError> {
    let edge = |byte| Fingerprint::from_bytes([byte; 32]);
    let mut found = Vec::new();
    for (fingerprint, pool) in
        tx.scan::<Pools>(edge(0)..=edge(u8::MAX), Order::Rising, MOST_SEEN)?
    {
        let waiting = |n| (fingerprint, Timestamp::from_millis(n), ClaimId::from_number(n));
        let range = waiting(0)..=waiting(u64::MAX);
        found.push(PoolState {
            pool,
            stock: crate::rules::usable(tx, fingerprint, now)?,
            coming: crate::rules::coming(tx, fingerprint)?,
            waiting: tx.scan::<Waiting>(range, Order::Rising, MOST_SEEN)?.len(),
        });
    }
    Ok(found)
}

/// What was learned about how early tokens have to be used.
pub(crate) fn margins(tx: &dyn ReadTx) -> Result<Vec<LearnedMargin>, StoreError> {
    let range = (Text::least(), Text::least())..=(Text::after(""), Text::after(""));
    let rows = tx.scan::<Margins>(range, Order::Rising, MOST_SEEN)?;
    Ok(rows.into_iter().map(|(_, margin)| margin).collect())
}

/// Unassigned usable tokens by fingerprint.
pub(crate) fn stock_levels(tx: &dyn ReadTx, now: Timestamp) -> Result<Vec<StockLevel>, StoreError> {
    let mut levels: BTreeMap<Fingerprint, StockLevel> = BTreeMap::new();
    for ((fingerprint, usable_until, _), stocked) in
        tx.scan::<Stock>(all_stock(), Order::Rising, usize::MAX)?
    {
        if now.plus(MIN_LEFT) <= usable_until {
            let level = levels.entry(fingerprint).or_insert(StockLevel {
                fingerprint,
                kind: stocked.kind,
                usable: 0,
                next_expiry: Some(usable_until),
            });
            level.usable += 1;
        }
    }
    Ok(levels.into_values().collect())
}

fn all_stock() -> RangeInclusive<(Fingerprint, Timestamp, SolveId)> {
    let edge = |byte, n| {
        (Fingerprint::from_bytes([byte; 32]), Timestamp::from_millis(n), SolveId::from_number(n))
    };
    edge(0, 0)..=edge(u8::MAX, u64::MAX)
}
