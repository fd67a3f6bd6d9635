//! The ledger at rest. The entries of one decision are one page; `LedgerIndex` finds the pages about a claim or a solve.
//! The daily totals are sums over the entries.

use std::collections::{BTreeMap, btree_map};

use domain::{
    chain::EntryHash,
    id::WorkerName,
    ledger::{Counts, Entry, Event, Total},
    money::Money,
    time::Day,
};

use crate::{
    Result,
    schema::keys::Text,
    schema::page::LedgerPage,
    schema::tables::{LedgerIndex, Pages, Subject, Totals},
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::lanes;

/// The key of a total, or of a lane of it.
pub(crate) type TotalKey = (Day, Text);

// === pages ===

/// The end of the ledger, after which the next page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LedgerEnd {
    /// The number of the last entry.
    pub(crate) seq: u64,
    /// Its hash.
    hash: EntryHash,
}

/// Pages of a transaction that have no numbers yet stand after this one. No ledger has as many entries.
pub(crate) const LAST_NUMBER: u64 = 1 << 62;

/// Numbers the entries after the last page, and writes them as the next one.
pub(crate) fn append_numbered(tx: &mut dyn WriteTx, entries: Vec<Entry>) -> Result<()> {
    let end = LedgerEnd::read(tx)?;
    end.append(tx, entries).map(drop)
}

/// Writes a page of numbered entries with their hashes, and its index. Returns the end after it.
pub(crate) fn write_page(
    tx: &mut dyn WriteTx,
    end: LedgerEnd,
    entries: Vec<Entry>,
) -> Result<LedgerEnd> {
    let Some(seq) = entries.last().map(|entry| entry.seq) else { return Ok(end) };
    let page = LedgerPage::chained(end.hash, entries);
    let hash = page.last_hash();
    put_page(tx, seq, page)?;
    Ok(LedgerEnd { seq, hash })
}

/// Writes a page that gets its numbers and hashes later. Until then, later decisions of the same transaction find it.
pub(crate) fn write_unnumbered(
    tx: &mut dyn WriteTx,
    after: u64,
    mut entries: Vec<Entry>,
) -> Result<u64> {
    let last = number(&mut entries, after);
    put_page(tx, last, LedgerPage { entries, hashes: None })?;
    Ok(last)
}

/// Writes a page and its index.
fn put_page(tx: &mut dyn WriteTx, seq: u64, page: LedgerPage) -> Result<()> {
    let entries = &page.entries;
    let mut subjects: Vec<Subject> = entries.iter().filter_map(subject).collect();
    subjects.extend(entries.iter().filter_map(audit_subject));
    subjects.sort_unstable();
    subjects.dedup();
    for subject in subjects {
        tx.put::<LedgerIndex>((subject, seq), ())?;
    }
    tx.put::<Pages>(seq, page)
}

/// Numbers the entries from the one after `last` on. Returns the last number.
fn number(entries: &mut [Entry], last: u64) -> u64 {
    let mut seq = last;
    for entry in entries {
        seq += 1;
        entry.seq = seq;
    }
    seq
}

/// The number of the last page that has one.
pub(crate) fn last_page(tx: &dyn ReadTx) -> Result<Option<(u64, LedgerPage)>> {
    Ok(tx.scan::<Pages>(0..=LAST_NUMBER, Order::Falling, 1)?.pop())
}

impl LedgerEnd {
    pub(crate) fn read(tx: &dyn ReadTx) -> Result<Self> {
        let last = last_page(tx)?;
        Ok(last.map_or(Self { seq: 0, hash: EntryHash::START }, |(seq, page)| Self {
            seq,
            hash: page.last_hash(),
        }))
    }

    /// Writes the entries as the next page. Returns the end after it.
    pub(crate) fn append(self, tx: &mut dyn WriteTx, mut entries: Vec<Entry>) -> Result<Self> {
        number(&mut entries, self.seq);
        write_page(tx, self, entries)
    }
}

/// The entries from number `from` on.
pub(crate) fn entries(tx: &dyn ReadTx, from: u64, limit: usize) -> Result<Vec<Entry>> {
    // A page has at least one entry, so `limit` pages hold enough.
    let pages = tx.scan::<Pages>(from..=u64::MAX, Order::Rising, limit)?;
    let all = pages.into_iter().flat_map(|(_, page)| page.entries);
    Ok(all.filter(|entry| entry.seq >= from).take(limit).collect())
}

/// The numbers of the pages about a subject, from `from` on.
pub(crate) fn pages_about(
    tx: &dyn ReadTx,
    subject: Subject,
    from: u64,
    limit: usize,
) -> Result<Vec<u64>> {
    let range = (subject, from)..=(subject, u64::MAX);
    let rows = tx.scan::<LedgerIndex>(range, Order::Rising, limit)?;
    Ok(rows.into_iter().map(|((_, seq), ())| seq).collect())
}

/// Whether an entry on a page about the subject matches.
pub(crate) fn has_entry(
    tx: &dyn ReadTx,
    subject: Subject,
    matches: impl Fn(&Entry) -> bool,
) -> Result<bool> {
    for seq in pages_about(tx, subject, 0, usize::MAX)? {
        if tx.get::<Pages>(&seq)?.unwrap_or_default().entries.iter().any(&matches) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The subject that an entry is indexed by. An entry about a claim is indexed by the claim alone, so that the explanation of
/// one claim does not show the others that shared its solve.
pub(crate) fn subject(entry: &Entry) -> Option<Subject> {
    entry.claim.map(Subject::Claim).or(entry.solve.map(Subject::Solve))
}

/// The subject that an archive indexes an entry by. It indexes every entry, also those about neither claim nor solve.
pub(crate) fn archive_subject(entry: &Entry) -> Subject {
    subject(entry).unwrap_or(Subject::Moment(entry.at))
}

/// Where the audit trail finds an entry that belongs to it.
pub(crate) fn audit_subject(entry: &Entry) -> Option<Subject> {
    entry.event.audited_as().map(|_| Subject::Audit(entry.at))
}

// === totals ===

pub(crate) fn add_to_total(tx: &mut dyn WriteTx, added: Total) -> Result<()> {
    let key = total_key(&added, tx.sum_lane());
    let total = match tx.get::<Totals>(&key)? {
        Some(mut total) => {
            total.counts.add(&added.counts);
            total
        }
        None => added,
    };
    tx.put::<Totals>(key, total)
}

/// Raises each count of a total to at least the given one; `true` when a count changed.
pub(crate) fn raise_total(tx: &mut dyn WriteTx, key: TotalKey, least: &Total) -> Result<bool> {
    let known = tx.get::<Totals>(&key)?;
    let mut total = known.clone().unwrap_or_else(|| least.clone());
    total.counts.raise(&least.counts);
    let changed = known.as_ref() != Some(&total);
    if changed {
        tx.put::<Totals>(key, total)?;
    }
    Ok(changed)
}

pub(crate) fn total_key(total: &Total, lane: u8) -> TotalKey {
    let label = format!("{}{}/{}", label_of_worker(&total.worker), total.project, total.kind);
    (total.day, lanes::name_in(lane, &label))
}

/// The totals of which these are the lanes, in the order of their labels.
pub(crate) fn sums_of_lanes(rows: impl IntoIterator<Item = Total>) -> Vec<Total> {
    let mut totals: BTreeMap<TotalKey, Total> = BTreeMap::new();
    for row in rows {
        match totals.entry(total_key(&row, 0)) {
            btree_map::Entry::Occupied(mut known) => known.get_mut().counts.add(&row.counts),
            btree_map::Entry::Vacant(new) => {
                new.insert(row);
            }
        }
    }
    totals.into_values().collect()
}

/// How the labels of a worker's totals begin. A name has no slash.
pub(crate) fn label_of_worker(worker: &WorkerName) -> String {
    format!("{worker}/")
}

/// The counts that an event adds to the totals.
pub(crate) fn counts_of(event: &Event) -> Counts {
    let none = Counts::default();
    match event {
        Event::Opened { .. } => Counts { opened: 1, ..none },
        Event::Replayed => Counts { replayed: 1, ..none },
        Event::Joined => Counts { joined: 1, ..none },
        Event::Refused { .. } => Counts { refused: 1, ..none },
        Event::Refusals { count, .. } => Counts { refused: *count, ..none },
        Event::Ordered { .. } => Counts { ordered: 1, ..none },
        Event::Accepted { .. } | Event::Orphaned { .. } => Counts { attempts: 1, ..none },
        Event::Ambiguous { .. } => Counts { ambiguous: 1, ..none },
        // The cost of the ambiguous attempt stays unknown from here on.
        Event::Authorised { .. } => Counts { authorised: 1, cost_unknown: 1, ..none },
        Event::WrittenOff { .. } => Counts { cost_unknown: 1, ..none },
        Event::TaskOver { cost, .. } => cost_counts(*cost),
        Event::Ready { cost, .. } => Counts { solved: 1, ..cost_counts(*cost) },
        Event::Wasted { .. } => Counts { wasted: 1, ..none },
        Event::Intent { .. }
        | Event::NotAccepted { .. }
        | Event::Overdue { .. }
        | Event::Failed { .. }
        | Event::Recovered { .. }
        // Claims and their outcomes are counted by `books`.
        | Event::Allotted { .. }
        | Event::Ended { .. }
        | Event::Banked { .. }
        | Event::Delivered { .. }
        | Event::DeadLettered { .. }
        | Event::DeadLetterClosed
        | Event::DeadLetterReopened { .. }
        | Event::Reported { .. }
        | Event::Revived { .. }
        | Event::Purged { .. }
        | Event::Administered { .. }
        | Event::WritesLost { .. }
        | Event::CalledBack { .. }
        | Event::CallbackDropped { .. }
        | Event::Carried { .. }
        | Event::BalanceAsked { .. }
        | Event::BalanceRead { .. }
        | Event::Reopened { .. } => none,
    }
}

fn cost_counts(cost: Option<Money>) -> Counts {
    match cost {
        Some(cost) => Counts { cost, priced: 1, ..Counts::default() },
        None => Counts { cost_unknown: 1, ..Counts::default() },
    }
}
