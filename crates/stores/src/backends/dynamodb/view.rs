//! The current rows of the tables: the segments, with the changes of the log since then on top.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use domain::ports::StoreError;

use crate::optimistic::{
    CommitOutcome, Conflict, RawKey, ReadSet, ScanRange, Validator, VersionedRow,
};

use super::{
    error::unavailable,
    layout::{Segment, StoredValue, table_end},
    log::{Log, State},
    segments::SegmentSet,
};

/// The rows and ranges that a read set needs.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadNeeds {
    pub(super) rows: Vec<RawKey>,
    pub(super) ranges: Vec<ScanNeed>,
}

/// The first rows of a range.
#[derive(Clone, Debug)]
pub(super) struct ScanNeed {
    pub(super) keys: RangeInclusive<RawKey>,
    pub(super) falling: bool,
    pub(super) limit: usize,
}

/// All rows of a table from `from` up to, but without, `to`.
#[derive(Debug)]
pub(super) struct LoadedRange {
    pub(super) from: RawKey,
    pub(super) to: RawKey,
    pub(super) rows: BTreeMap<RawKey, StoredValue>,
}

/// The current rows at one moment: the ranges around the rows, and for each scan its ranges in the order of the scan.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) rows: Vec<LoadedRange>,
    pub(super) ranges: Vec<Vec<LoadedRange>>,
}

/// A snapshot is given up after this many compactions during the reads.
const MAX_ATTEMPTS: usize = 20;

// === impl ReadNeeds ===

impl ReadNeeds {
    pub(super) fn of(reads: &ReadSet) -> Self {
        let scans = reads.scans.iter();
        let ranges = scans.map(|(scan, read)| ScanNeed::all_of(scan, read.conflict_limit()));
        Self { rows: reads.rows.keys().cloned().collect(), ranges: ranges.collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ranges.is_empty()
    }
}

// === impl Log ===

impl Log {
    /// Reads everything that is needed, as of one moment.
    pub(super) async fn snapshot(&self, needs: &ReadNeeds) -> Result<Snapshot, StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            let (compacted, resets) = {
                let state = self.state();
                (state.compacted, state.resets)
            };
            if let Some(segments) = self.gather(needs).await? {
                let state = self.state();
                // A compaction during the reads has dropped changes that an older segment lacks. A segment that is newer
                // than the log, as far as it was read, belongs to another moment.
                let is_same = state.compacted == compacted && state.resets == resets;
                if is_same && segments.all().all(|segment| segment.compacted <= state.slot) {
                    return Ok(state.snapshot(segments));
                }
            }
            self.catch_up().await?;
        }
        Err(unavailable("too many conflicts with the compaction; retry later"))
    }
}

impl Validator for Log {
    async fn validate(&self, reads: &ReadSet) -> Result<CommitOutcome, StoreError> {
        self.catch_up().await?;
        let snapshot = self.snapshot(&ReadNeeds::of(reads)).await?;
        snapshot.compare(self, reads).await
    }
}

// === merging log and segments ===

impl State {
    fn snapshot(&self, segments: SegmentSet) -> Snapshot {
        let ranges = |segments: Vec<Segment>| -> Vec<LoadedRange> {
            segments.into_iter().map(|segment| self.merge(segment)).collect()
        };
        Snapshot {
            rows: ranges(segments.rows),
            ranges: segments.ranges.into_iter().map(ranges).collect(),
        }
    }

    /// Applies the changes of the log to a segment.
    fn merge(&self, segment: Segment) -> LoadedRange {
        let mut rows: BTreeMap<RawKey, StoredValue> = segment.rows.into_iter().collect();
        for (key, (_, value)) in self.recent.range(segment.least.clone()..segment.until.clone()) {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        LoadedRange { from: segment.least, to: segment.until, rows }
    }

    /// The number of current rows of the scan in a segment.
    pub(super) fn count(&self, segment: &Segment, range: &ScanNeed) -> usize {
        let is_there = |key: &RawKey| self.recent.get(key).is_none_or(|(_, value)| value.is_some());
        let compacted: Vec<&RawKey> = segment.rows.iter().map(|(key, _)| key).collect();
        let old =
            compacted.iter().filter(|key| range.keys.contains(**key) && is_there(key)).count();
        let recent = self.recent.range(segment.least.clone()..segment.until.clone());
        let new = recent.filter(|(key, (_, value))| {
            value.is_some() && range.keys.contains(*key) && compacted.binary_search(key).is_err()
        });
        old + new.count()
    }
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) async fn compare(
        self,
        log: &Log,
        reads: &ReadSet,
    ) -> Result<CommitOutcome, StoreError> {
        let mut conflicts = Vec::new();
        for (key, version) in &reads.rows {
            let row = match self.row(key) {
                Some(value) => Some(row(log.value(value).await?)),
                None => None,
            };
            // A cached row was returned a moment ago, by this very query.
            if row.is_some() != version.is_some() {
                conflicts.push(Conflict::Row(key.clone(), row));
            }
        }
        for ((scan, read), ranges) in reads.scans.iter().zip(&self.ranges) {
            let range = ScanNeed::all_of(scan, read.conflict_limit());
            let (mut rows, is_all) = range.select(ranges);
            let is_cut = rows.len() > range.limit;
            rows.truncate(range.limit);
            let more = is_cut || !is_all;
            if more && rows.is_empty() {
                // Rows that were counted are gone again, so this snapshot cannot answer the scan.
                return Ok(CommitOutcome::Retry);
            }
            let keys = rows.iter().map(|(key, _)| *key);
            if !more && read.until.is_none() && keys.eq(&read.keys) {
                continue;
            }
            let mut current = Vec::with_capacity(rows.len());
            for (key, value) in rows {
                current.push((key.clone(), row(log.value(value).await?)));
            }
            conflicts.push(Conflict::Range { scan: scan.clone(), rows: current, more });
        }
        Ok(CommitOutcome::of_conflicts(conflicts))
    }

    fn row(&self, key: &RawKey) -> Option<&StoredValue> {
        let around = |one: &&LoadedRange| one.from <= *key && *key < one.to;
        self.rows.iter().find(around)?.rows.get(key)
    }
}

/// A row for the cache. Its version is not used: the log shows what has changed.
pub(super) fn row(bytes: Arc<[u8]>) -> VersionedRow {
    VersionedRow { bytes, ..VersionedRow::key_only() }
}

// === impl ScanNeed ===

impl ScanNeed {
    /// The first rows of the whole scan.
    pub(super) fn all_of(scan: &ScanRange, limit: usize) -> Self {
        Self { keys: scan.covered(None), falling: scan.falling, limit }
    }

    /// The rows of the scan in its order, and whether these are all.
    fn select<'s>(&self, ranges: &'s [LoadedRange]) -> (Vec<(&'s RawKey, &'s StoredValue)>, bool) {
        let mut rows = Vec::new();
        for range in ranges {
            let within = range.rows.iter().filter(|(key, _)| self.keys.contains(*key));
            if self.falling { rows.extend(within.rev()) } else { rows.extend(within) }
        }
        (rows, ranges.last().is_some_and(|last| self.ends_in(&last.from, &last.to)))
    }

    /// Whether the scan ends in this range.
    pub(super) fn ends_in(&self, from: &RawKey, to: &RawKey) -> bool {
        if self.falling {
            return from <= self.keys.start();
        }
        to > self.keys.end() || *to == table_end(from[0])
    }
}
