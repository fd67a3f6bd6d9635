//! What a transaction has read: the rows by their versions, and the ranges by the keys that were in them. The server compares the
//! read set before it writes.

use std::{collections::BTreeMap, ops::RangeInclusive};

use crate::tx::Order;

use super::{Conflict, MAX_CONFLICT_ROWS, RawKey, RowVersion, VersionedRow};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadSet {
    /// Rows by their version; `None`: the row did not exist.
    pub(crate) rows: BTreeMap<RawKey, Option<RowVersion>>,
    pub(crate) scans: BTreeMap<ScanRange, RangeRead>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScanRange {
    pub(crate) least: RawKey,
    pub(crate) most: RawKey,
    /// Whether the scan started at the largest key.
    pub(crate) falling: bool,
}

/// How far a range was read, and what was in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeRead {
    /// The last key that was read; `None`: the whole range.
    pub(crate) until: Option<RawKey>,
    /// The keys in the order of the scan.
    pub(crate) keys: Vec<RawKey>,
    pub(crate) limit: usize,
    /// Whether nobody will read more of it, so that a conflict returns no more than what was asked for.
    pub(crate) is_exact: bool,
}

// === impl ReadSet ===

impl ReadSet {
    /// What is not in `others`.
    #[must_use]
    pub(crate) fn without(mut self, others: &Self) -> Self {
        self.rows.retain(|key, _| !others.rows.contains_key(key));
        self.scans.retain(|scan, read| {
            others.scans.get(scan).is_none_or(|other| read.limit > other.limit)
        });
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.scans.is_empty()
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.rows.extend(others.rows);
        self.scans.extend(others.scans);
    }

    /// Adds a scan. The decisions of a batch scan the same range again and again, each time a little farther, so the keys read
    /// before are the beginning of those read now.
    pub(super) fn add_scan(
        &mut self,
        scan: &ScanRange,
        until: Option<RawKey>,
        seen: &[(&RawKey, &VersionedRow)],
        limit: usize,
    ) {
        let new = || RangeRead { until: until.clone(), ..RangeRead::default() };
        let read = self.scans.entry(scan.clone()).or_insert_with(new);
        for (key, row) in seen.iter().skip(read.keys.len()) {
            // A row with a value is compared by its version. A row without one is compared by the keys of the range.
            if !row.bytes.is_empty() {
                self.rows.insert((*key).clone(), Some(row.version));
            }
            read.keys.push((*key).clone());
        }
        read.limit = read.limit.max(limit);
        if scan.reaches(until.as_ref(), read.until.as_ref()) {
            read.until = until;
        }
    }

    pub(crate) fn add_conflict(&mut self, conflict: &Conflict) {
        let Conflict::Range { scan, rows, more } = conflict else { return };
        self.rows.extend(rows.iter().map(|(key, row)| (key.clone(), Some(row.version))));
        if let Some(read) = self.scans.get_mut(scan).filter(|_| *more) {
            read.limit = rows.len();
        }
    }
}

// === impl ScanRange ===

impl ScanRange {
    pub(crate) fn order(&self) -> Order {
        if self.falling { Order::Falling } else { Order::Rising }
    }

    /// Whether a scan up to `until` went at least as far as one up to `other`; `None`: to the end.
    fn reaches(&self, until: Option<&RawKey>, other: Option<&RawKey>) -> bool {
        match (until, other) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(until), Some(other)) if self.falling => until <= other,
            (Some(until), Some(other)) => until >= other,
        }
    }

    /// The part of the range that a scan covers when it ends at `last`; `None`: at the end.
    pub(crate) fn covered(&self, last: Option<&RawKey>) -> RangeInclusive<RawKey> {
        match (last, self.falling) {
            (None, _) => self.least.clone()..=self.most.clone(),
            (Some(last), false) => self.least.clone()..=last.clone(),
            (Some(last), true) => last.clone()..=self.most.clone(),
        }
    }
}

// === impl RangeRead ===

impl RangeRead {
    /// How many rows a conflict returns. A batch that takes what it scans comes back for more, so it gets twice as many rows as
    /// it knew.
    pub(crate) fn conflict_limit(&self) -> usize {
        if self.is_exact {
            return self.limit;
        }
        let known = self.keys.len();
        known + self.limit.saturating_sub(known).max(known).clamp(16, MAX_CONFLICT_ROWS)
    }
}
