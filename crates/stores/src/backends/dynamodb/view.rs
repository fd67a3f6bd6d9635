//! The current rows of the tables: the segments, with the changes of the log since then on top. Segments change during a compaction,
//! so those that were read may not fit together; then they are read again.

use std::{collections::BTreeMap, mem, ops::RangeInclusive, sync::Arc, time::Duration};

use domain::ports::{ServerTime, StoreError};
use futures_util::future::try_join_all;

use crate::optimistic::{
    CommitOutcome, Conflict, RangeRead, RawKey, ReadSet, ScanRange, Validator, VersionedRow,
};

use super::{
    connection::ItemRange,
    error::unavailable,
    health,
    layout::{Segment, StoredValue, segment_partition, table_end},
    log::{Log, State},
};

/// The first rows of a scan.
struct ScanNeed {
    keys: RangeInclusive<RawKey>,
    falling: bool,
    limit: usize,
}

/// The current rows at one moment: the segments around the rows, and for each scan its segments in the order of the scan.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) rows: Vec<Segment>,
    pub(super) ranges: Vec<Vec<Segment>>,
}

/// Segments in one request of a long scan.
const MAX_SEGMENTS: usize = 16;
/// Parallel requests for the rows of one table.
const LANES: usize = 8;
/// Up to this many rows are read one after the other, because they may be in one segment.
const MIN_LANE: usize = 4;
/// A snapshot is given up after this many compactions during the reads.
const MAX_ATTEMPTS: usize = 20;

// === impl Log ===

impl Log {
    /// Reads the rows and scans of a read set, as of one moment.
    pub(super) async fn snapshot(&self, reads: &ReadSet) -> Result<Snapshot, StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            let (compacted, resets) = {
                let state = self.state();
                (state.compacted, state.resets)
            };
            if let Some(mut snapshot) = self.gather(reads).await? {
                let state = self.state();
                // A compaction during the reads has dropped changes that an older segment lacks. A segment that is newer
                // than the log belongs to another moment.
                let is_same = state.compacted == compacted && state.resets == resets;
                let mut segments =
                    snapshot.rows.iter_mut().chain(snapshot.ranges.iter_mut().flatten());
                if is_same && segments.all(|segment| state.merge(segment)) {
                    return Ok(snapshot);
                }
            }
            self.catch_up().await?;
        }
        Err(unavailable("too many conflicts with the compaction; retry later"))
    }

    /// The segments of a read set; `None` when they changed during the reads.
    async fn gather(&self, reads: &ReadSet) -> Result<Option<Snapshot>, StoreError> {
        let keys: Vec<&RawKey> = reads.rows.keys().collect();
        let tables = keys.chunk_by(|a, b| a[0] == b[0]);
        let lanes = tables.flat_map(|keys| keys.chunks(keys.len().div_ceil(LANES).max(MIN_LANE)));
        let rows = try_join_all(lanes.map(|keys| self.segments_at(keys)));
        let scans = reads.scans.iter().map(|(scan, read)| ScanNeed::of(scan, read));
        let ranges = try_join_all(scans.map(|scan| self.segments_of(scan)));
        let (rows, ranges) = tokio::try_join!(rows, ranges)?;
        let rows = rows.into_iter().collect::<Option<Vec<_>>>();
        let ranges = ranges.into_iter().collect::<Option<Vec<_>>>();
        let rows = rows.map(|rows| rows.into_iter().flatten().collect());
        Ok(rows.zip(ranges).map(|(rows, ranges)| Snapshot { rows, ranges }))
    }

    /// The segments of some sorted keys.
    async fn segments_at(&self, keys: &[&RawKey]) -> Result<Option<Vec<Segment>>, StoreError> {
        let mut found: Vec<Segment> = Vec::new();
        for key in keys {
            if found.last().is_none_or(|segment| segment.until <= **key) {
                let Some(segment) = self.segment_at(key[0], key).await? else { return Ok(None) };
                found.push(segment);
            }
        }
        Ok(Some(found))
    }

    /// The segment of a key. The end of a table is in its last segment. A table without segments counts as one empty segment.
    /// A query may see half of a transaction; then there is no segment for a moment.
    pub(super) async fn segment_at(
        &self,
        tag: u8,
        key: &RawKey,
    ) -> Result<Option<Segment>, StoreError> {
        let found = self.segments_before(tag, key, 1).await?;
        let found = found.into_iter().next().unwrap_or_else(|| Segment::empty(tag));
        Ok(Some(found).filter(|segment| *key < segment.until || segment.until == table_end(tag)))
    }

    /// The segment that begins at `most` or before it, and those before.
    pub(super) async fn segments_before(
        &self,
        tag: u8,
        most: &RawKey,
        limit: usize,
    ) -> Result<Vec<Segment>, StoreError> {
        let most = Some(most.to_vec());
        let range = ItemRange { most, falling: true, ..ItemRange::segments(tag, limit) };
        self.read_segments(range).await
    }

    async fn read_segments(&self, range: ItemRange) -> Result<Vec<Segment>, StoreError> {
        let items = self.client.query(&range).await?;
        items.iter().map(Segment::read).collect()
    }

    /// The segments of a scan, until they have enough rows.
    async fn segments_of(&self, scan: ScanNeed) -> Result<Option<Vec<Segment>>, StoreError> {
        let (least, most) = (scan.keys.start(), scan.keys.end());
        let tag = least[0];
        let start = if scan.falling { most.min(&table_end(tag)).clone() } else { least.clone() };
        let Some(first) = self.segment_at(tag, &start).await? else { return Ok(None) };
        let mut found = vec![first];
        let mut rows = self.state().count(&found[0], &scan);
        while let Some(end) = found.last().filter(|end| !scan.ends_in(end)) {
            if rows >= scan.limit {
                break;
            }
            let next = if scan.falling {
                // The query returns the last segment once more.
                let mut next = self.segments_before(tag, &end.least, MAX_SEGMENTS + 1).await?;
                next.retain(|segment| segment.least < end.least);
                next
            } else {
                let (least, most) = (Some(end.until.to_vec()), Some(most.to_vec()));
                let range = ItemRange { least, most, ..ItemRange::segments(tag, MAX_SEGMENTS) };
                self.read_segments(range).await?
            };
            if next.is_empty() {
                return Ok(None);
            }
            for segment in next {
                let meets = found.last().is_none_or(|end| {
                    if scan.falling {
                        segment.until == end.least
                    } else {
                        segment.least == end.until
                    }
                });
                if !meets {
                    return Ok(None);
                }
                rows += self.state().count(&segment, &scan);
                found.push(segment);
            }
        }
        Ok(Some(found))
    }
}

impl ItemRange {
    /// The segments of a table from the first on.
    fn segments(tag: u8, limit: usize) -> Self {
        Self { partition: segment_partition(tag), limit: Some(limit), ..Self::default() }
    }
}

impl Validator for Log {
    async fn validate(&self, reads: &ReadSet) -> Result<CommitOutcome, StoreError> {
        self.catch_up().await?;
        let snapshot = self.snapshot(reads).await?;
        snapshot.compare(self, reads).await
    }

    fn admission_delay(&self) -> Result<Duration, StoreError> {
        self.state().admission_delay().ok_or_else(|| {
            unavailable(
                "too many commits are not compacted yet, so no new claims are admitted; retry later, and look for \
                 `compaction failed` in the logs of the gateways",
            )
        })
    }

    async fn server_time(&self) -> Result<ServerTime, StoreError> {
        Ok(health::server_time(&self.client).await?)
    }
}

// === merging log and segments ===

impl State {
    /// Applies the changes of the log to a segment. Returns `false` if the segment is newer than the log as far as it was read.
    fn merge(&self, segment: &mut Segment) -> bool {
        let mut rows: BTreeMap<_, _> = mem::take(&mut segment.rows).into_iter().collect();
        for (key, (_, value)) in self.recent.range(segment.least.clone()..segment.until.clone()) {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        segment.rows = rows.into_iter().collect();
        segment.compacted <= self.slot
    }

    /// The number of current rows of the scan in a segment.
    fn count(&self, segment: &Segment, range: &ScanNeed) -> usize {
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
        for ((scan, read), segments) in reads.scans.iter().zip(&self.ranges) {
            let range = ScanNeed::of(scan, read);
            let (mut rows, is_all) = range.select(segments);
            let is_cut = rows.len() > range.limit;
            rows.truncate(range.limit);
            let more = is_cut || !is_all;
            if more && rows.is_empty() {
                // Rows that were counted are gone again, so this snapshot cannot answer the scan.
                return Ok(CommitOutcome::Retry);
            }
            let keys = rows.iter().map(|(key, _)| key);
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
        let around = |segment: &&Segment| segment.least <= *key && *key < segment.until;
        let rows = &self.rows.iter().find(around)?.rows;
        rows.binary_search_by(|(other, _)| other.cmp(key)).ok().map(|at| &rows[at].1)
    }
}

/// A row for the cache. Its version is not used: the log shows what has changed.
pub(super) fn row(bytes: Arc<[u8]>) -> VersionedRow {
    VersionedRow { bytes, ..VersionedRow::key_only() }
}

// === impl ScanNeed ===

impl ScanNeed {
    fn of(scan: &ScanRange, read: &RangeRead) -> Self {
        Self { keys: scan.covered(None), falling: scan.falling, limit: read.conflict_limit() }
    }

    /// The rows of the scan in its order, and whether these are all.
    fn select<'s>(&self, segments: &'s [Segment]) -> (Vec<&'s (RawKey, StoredValue)>, bool) {
        let mut rows = Vec::new();
        for segment in segments {
            let within = segment.rows.iter().filter(|(key, _)| self.keys.contains(key));
            if self.falling { rows.extend(within.rev()) } else { rows.extend(within) }
        }
        (rows, segments.last().is_some_and(|last| self.ends_in(last)))
    }

    /// Whether the scan ends in this segment.
    fn ends_in(&self, segment: &Segment) -> bool {
        if self.falling {
            return segment.least <= *self.keys.start();
        }
        segment.until > *self.keys.end() || segment.until == table_end(segment.tag())
    }
}
