//! Reads the segments of rows and scans. Segments change during a compaction, so a set of them may not fit together; then there is
//! none.

use std::ops::RangeInclusive;

use domain::ports::StoreError;
use futures_util::future::try_join_all;

use crate::optimistic::RawKey;

use super::{
    connection::ItemRange,
    layout::{Segment, segment_partition, table_end},
    log::Log,
    view::{ReadNeeds, ScanNeed},
};

/// The segments of some rows, and those of each scan.
pub(super) struct SegmentSet {
    pub(super) rows: Vec<Segment>,
    pub(super) ranges: Vec<Vec<Segment>>,
}

/// Segments in one request of a long scan.
const MAX_SEGMENTS: usize = 16;
/// Parallel requests for the rows of one table.
const LANES: usize = 8;
/// Up to this many rows are read one after the other, because they may be in one segment.
const MIN_LANE: usize = 4;

// === impl SegmentSet ===

impl SegmentSet {
    pub(super) fn all(&self) -> impl Iterator<Item = &Segment> {
        self.rows.iter().chain(self.ranges.iter().flatten())
    }
}

// === impl ItemRange ===

impl ItemRange {
    /// The segments of a table from the first on.
    fn segments(tag: u8, limit: usize) -> Self {
        Self { partition: segment_partition(tag), limit: Some(limit), ..Self::default() }
    }
}

// === impl Log ===

impl Log {
    /// The segments of everything that is needed; `None` when they changed during the reads.
    pub(super) async fn gather(&self, needs: &ReadNeeds) -> Result<Option<SegmentSet>, StoreError> {
        let mut keys: Vec<&RawKey> = needs.rows.iter().collect();
        keys.sort_unstable();
        let tables = keys.chunk_by(|a, b| a[0] == b[0]);
        let lanes = tables.flat_map(|keys| keys.chunks(keys.len().div_ceil(LANES).max(MIN_LANE)));
        let rows = try_join_all(lanes.map(|keys| self.segments_at(keys)));
        let ranges = try_join_all(needs.ranges.iter().map(|range| self.segments_of(range)));
        let (rows, ranges) = tokio::try_join!(rows, ranges)?;
        let rows = rows.into_iter().collect::<Option<Vec<_>>>();
        let ranges = ranges.into_iter().collect::<Option<Vec<_>>>();
        let both = rows.zip(ranges);
        Ok(both.map(|(rows, ranges)| SegmentSet {
            rows: rows.into_iter().flatten().collect(),
            ranges,
        }))
    }

    /// The segments of some sorted keys.
    async fn segments_at(&self, keys: &[&RawKey]) -> Result<Option<Vec<Segment>>, StoreError> {
        let mut found: Vec<Segment> = Vec::new();
        for key in keys {
            if found.last().is_none_or(|segment| segment.until <= **key) {
                let Some(segment) = self.segment_at(key).await? else { return Ok(None) };
                found.push(segment);
            }
        }
        Ok(Some(found))
    }

    /// The segment of a key. A table without segments counts as one empty segment. A query may see half of a transaction; then
    /// there is no segment for a moment.
    pub(super) async fn segment_at(&self, key: &RawKey) -> Result<Option<Segment>, StoreError> {
        let found = self.segments_before(key[0], Some(key), 1).await?;
        let found = found.into_iter().next().unwrap_or_else(|| Segment::empty(key[0]));
        Ok(Some(found).filter(|segment| *key < segment.until))
    }

    /// The segment that begins at `most` or before it, and those before; `None`: from the last of the table.
    pub(super) async fn segments_before(
        &self,
        tag: u8,
        most: Option<&RawKey>,
        limit: usize,
    ) -> Result<Vec<Segment>, StoreError> {
        let most = most.map(|key| key.to_vec());
        let range = ItemRange { most, falling: true, ..ItemRange::segments(tag, limit) };
        self.read_segments(range).await
    }

    /// Segments that begin in a range.
    async fn segments_within(
        &self,
        keys: RangeInclusive<&RawKey>,
        limit: usize,
    ) -> Result<Vec<Segment>, StoreError> {
        let (least, most) = (Some(keys.start().to_vec()), Some(keys.end().to_vec()));
        self.read_segments(ItemRange { least, most, ..ItemRange::segments(keys.start()[0], limit) })
            .await
    }

    async fn read_segments(&self, range: ItemRange) -> Result<Vec<Segment>, StoreError> {
        let items = self.client.query(&range).await.map_err(|error| self.failed(error))?;
        items.iter().map(Segment::read).collect()
    }

    /// The segments of a scan, until they have enough rows.
    async fn segments_of(&self, scan: &ScanNeed) -> Result<Option<Vec<Segment>>, StoreError> {
        let (least, most) = (scan.keys.start(), scan.keys.end());
        let tag = least[0];
        let start = if scan.falling { most.min(&table_end(tag)).clone() } else { least.clone() };
        let Some(first) = self.first_segment(&start, tag).await? else { return Ok(None) };
        let mut found = vec![first];
        let mut rows = self.state().count(&found[0], scan);
        while let Some(end) = found.last().filter(|end| !scan.ends_in(&end.least, &end.until)) {
            if rows >= scan.limit {
                break;
            }
            let next = if scan.falling {
                // The query returns the last segment once more.
                let mut next =
                    self.segments_before(tag, Some(&end.least), MAX_SEGMENTS + 1).await?;
                next.retain(|segment| segment.least < end.least);
                next
            } else {
                self.segments_within(&end.until..=most, MAX_SEGMENTS).await?
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
                rows += self.state().count(&segment, scan);
                found.push(segment);
            }
        }
        Ok(Some(found))
    }

    /// The segment in which a scan begins. A scan from the end of the table begins in the last one.
    async fn first_segment(&self, start: &RawKey, tag: u8) -> Result<Option<Segment>, StoreError> {
        let end = table_end(tag);
        if *start != end {
            return self.segment_at(start).await;
        }
        let found = self.segments_before(tag, None, 1).await?;
        let found = found.into_iter().next().unwrap_or_else(|| Segment::empty(tag));
        Ok(Some(found).filter(|segment| segment.until == end))
    }
}
