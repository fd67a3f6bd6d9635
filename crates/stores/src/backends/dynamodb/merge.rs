//! The work of a compaction (`compactor`): merges the changes of a table into its segments. A segment that grows is split, and one that
//! becomes empty is removed.
//!
//! Segments are independent of each other, so several are read and written at the same time; at one request after the other, a
//! table would take a hundred scattered rows a second. Splits and removals are transactions, one at a time.

use std::{collections::BTreeMap, mem};

use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem};
use domain::ports::StoreError;
use futures_util::future::try_join_all;

use crate::{
    optimistic::RawKey,
    schema::tables::{Joinable, Keys, Pools, Spare, Stock, Table, Tasks, Waiting},
};

use super::{
    compactor::{Compaction, taken_over},
    connection::{Condition, WriteResult},
    layout::{
        COMPACTED, COMPACTOR, EDITION, Segment, StoredValue, key, meta_key, number,
        segment_partition, table_least,
    },
    overflow::{keep_parts, release_parts},
};

type Change = (RawKey, Option<StoredValue>);

/// Changes of a table that are merged one segment after the other, while other parts are.
struct TablePart<'c> {
    /// The segment of the first change, if it was read already.
    first: Option<Segment>,
    changes: &'c [Change],
}

/// What is done with a segment that becomes empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    Remove,
    Leave,
}

/// Parts of a table that are merged at the same time.
const MAX_PARTS: usize = 16;
/// Fewer changes than this are not divided: many of them may be in one segment.
const MIN_PART: usize = 16;
/// Changes to one segment at a time: a transaction has at most a hundred items.
const MAX_CHANGES: usize = 60;
/// Writes are billed by the kibibyte. Rows whose keys grow with time fill one segment after the other. Rows with scattered keys
/// change one segment each, so those should be small.
const SEGMENT_BYTES: usize = 3900;
const SMALL_SEGMENT_BYTES: usize = 850;
/// The bytes of a row besides key and value.
const ROW_OVERHEAD: usize = 6;

impl Compaction<'_> {
    /// Merges the changes of one table, several segments at a time. Segments that become empty are removed after that, one after
    /// the other, because each removal changes a neighbour.
    pub(super) async fn compact_table(&self, changes: &[Change]) -> Result<(), StoreError> {
        let parts = self.parts(changes).await?;
        let parts = parts.into_iter().map(|part| self.compact_part(part, Empty::Leave));
        for changes in try_join_all(parts).await?.into_iter().flatten() {
            self.compact_part(TablePart { first: None, changes }, Empty::Remove).await?;
        }
        Ok(())
    }

    /// Divides the sorted changes of a table, so that all changes of a segment are in one part.
    async fn parts<'c>(&self, changes: &'c [Change]) -> Result<Vec<TablePart<'c>>, StoreError> {
        let length = changes.len().div_ceil(MAX_PARTS).max(MIN_PART);
        let keys = changes.chunks(length).skip(1).map(|chunk| &chunk[0].0);
        let segments = try_join_all(keys.map(|key| self.log.segment_at(key[0], key))).await?;
        let mut parts = Vec::with_capacity(MAX_PARTS);
        let (mut first, mut start) = (None, 0);
        // Without a segment another gateway has taken over. The next read finds that out.
        for segment in segments.into_iter().flatten() {
            let end = changes.partition_point(|(key, _)| *key < segment.least);
            if end > start {
                parts.push(TablePart {
                    first: first.replace(segment),
                    changes: &changes[start..end],
                });
                start = end;
            }
        }
        parts.push(TablePart { first, changes: &changes[start..] });
        Ok(parts)
    }

    /// Merges changes in the order of their keys. Returns those that would leave their segment empty, if such segments are left.
    async fn compact_part<'c>(
        &self,
        part: TablePart<'c>,
        empty: Empty,
    ) -> Result<Vec<&'c [Change]>, StoreError> {
        let TablePart { mut first, changes: mut rest } = part;
        let mut left = Vec::new();
        while let Some((key, _)) = rest.first() {
            let segment = match first.take() {
                Some(segment) => Some(segment),
                None => self.log.segment_at(key[0], key).await?,
            };
            let Some(segment) = segment.filter(|segment| segment.compacted <= self.slot) else {
                return Err(taken_over());
            };
            let here = rest.partition_point(|(key, _)| *key < segment.until).clamp(1, MAX_CHANGES);
            let (here, later) = rest.split_at(here);
            if !self.compact_segment(&segment, here, empty).await? {
                left.push(here);
            }
            rest = later;
        }
        Ok(left)
    }

    /// Returns `false` if the segment would become empty and was left as it is.
    async fn compact_segment(
        &self,
        segment: &Segment,
        changes: &[Change],
        empty: Empty,
    ) -> Result<bool, StoreError> {
        let mut rows: BTreeMap<&RawKey, &StoredValue> =
            segment.rows.iter().map(|(key, value)| (key, value)).collect();
        let mut is_changed = false;
        for (key, value) in changes {
            let before = match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(key),
            };
            is_changed |= before != value.as_ref();
        }
        // A segment that the compactor before may still write has to become newer than its writes, changed or not.
        let must_rewrite = self.is_takeover && is_stored(segment);
        if !is_changed && !must_rewrite {
            return Ok(true);
        }
        let is_removed =
            rows.is_empty() && is_stored(segment) && segment.least != table_least(segment.tag());
        if is_removed && empty == Empty::Leave {
            return Ok(false);
        }
        self.update_expiries(segment, &rows).await?;
        let pieces = self.pieces(segment, &rows);
        match pieces.as_slice() {
            _ if is_removed => self.remove(segment).await?,
            [only] if is_stored(segment) => self.replace(segment, only).await?,
            _ => self.split(segment, &pieces).await?,
        }
        Ok(true)
    }

    /// Keeps the overflow items of the rows that the segment gets, and releases those of the rows that it loses. The log has
    /// replaced or deleted the latter, so nothing refers to them even if this run fails now.
    async fn update_expiries(
        &self,
        segment: &Segment,
        rows: &BTreeMap<&RawKey, &StoredValue>,
    ) -> Result<(), StoreError> {
        let before: BTreeMap<_, _> = segment.rows.iter().map(|(key, value)| (key, value)).collect();
        let client = &self.log.client;
        for (key, value) in rows {
            let is_kept = segment.is_kept && before.get(key) == Some(value);
            if let (StoredValue::Overflow(overflow), false) = (value, is_kept) {
                keep_parts(client, *overflow).await?;
            }
        }
        for (key, value) in before {
            let is_gone = rows.get(key) != Some(&value);
            if let (StoredValue::Overflow(overflow), true) = (value, is_gone) {
                release_parts(client, key, *overflow).await?;
            }
        }
        Ok(())
    }

    /// Splits the rows of a segment into as many segments as they need.
    fn pieces(&self, segment: &Segment, rows: &BTreeMap<&RawKey, &StoredValue>) -> Vec<Segment> {
        let size_of = |key: &RawKey, value: &StoredValue| key.len() + value.size() + ROW_OVERHEAD;
        let whole: usize = rows.iter().map(|(key, value)| size_of(key, value)).sum();
        let most = match max_size(segment.tag()) {
            // New rows have scattered keys, so each segment needs free space.
            SMALL_SEGMENT_BYTES if whole > SMALL_SEGMENT_BYTES => SMALL_SEGMENT_BYTES * 2 / 3,
            most => most,
        };
        let (mut pieces, mut size) = (Vec::new(), 0);
        let mut last = self.new_segment(segment.least.clone(), segment.until.clone());
        for (key, value) in rows {
            let more = size_of(key, value);
            if size + more > most && !last.rows.is_empty() {
                let next = self.new_segment((*key).clone(), last.until);
                last.until = (*key).clone();
                pieces.push(mem::replace(&mut last, next));
                size = 0;
            }
            size += more;
            last.rows.push(((*key).clone(), (*value).clone()));
        }
        pieces.push(last);
        pieces
    }

    /// An empty segment of this run.
    fn new_segment(&self, least: RawKey, until: RawKey) -> Segment {
        Segment {
            least,
            until,
            compacted: self.slot,
            edition: fastrand::u64(1..),
            is_kept: true,
            rows: Vec::new(),
        }
    }

    async fn replace(&self, before: &Segment, segment: &Segment) -> Result<(), StoreError> {
        match self.log.client.put(segment.item(), self.unchanged_since(before)).await? {
            WriteResult::Done => Ok(()),
            // A request that arrived twice finds itself.
            WriteResult::ConditionFailed(Some(item))
                if Segment::read(&item)?.edition == segment.edition =>
            {
                Ok(())
            }
            WriteResult::ConditionFailed(_) => Err(taken_over()),
        }
    }

    /// Replaces a segment by several, or writes the first ones of a table.
    async fn split(&self, segment: &Segment, pieces: &[Segment]) -> Result<(), StoreError> {
        let mut actions = vec![self.check_compactor()];
        for piece in pieces {
            let is_first = piece.least == segment.least && is_stored(segment);
            let condition =
                if is_first { self.unchanged_since(segment) } else { Condition::is_new() };
            actions.push(self.put_if(piece, &condition));
        }
        self.transact(actions).await
    }

    /// Deletes an empty segment and extends the one before it.
    async fn remove(&self, segment: &Segment) -> Result<(), StoreError> {
        let found = self.log.segments_before(segment.tag(), &segment.least, 2).await?;
        let before = found.into_iter().find(|one| one.until == segment.least);
        let Some(before) = before else { return Err(taken_over()) };
        let longer = Segment {
            is_kept: before.is_kept,
            rows: before.rows.clone(),
            ..self.new_segment(before.least.clone(), segment.until.clone())
        };
        let delete = Delete::builder()
            .table_name(self.log.client.table())
            .set_key(Some(key(segment_partition(segment.tag()), &segment.least)))
            .build()
            .expect("all required fields are set");
        let delete = TransactWriteItem::builder().delete(delete).build();
        self.transact(vec![
            self.check_compactor(),
            self.put_if(&longer, &self.unchanged_since(&before)),
            delete,
        ])
        .await
    }

    async fn transact(&self, actions: Vec<TransactWriteItem>) -> Result<(), StoreError> {
        let _one_at_a_time = self.transacting.lock().await;
        match self.log.client.transact(actions).await? {
            WriteResult::Done => Ok(()),
            WriteResult::ConditionFailed(_) => Err(taken_over()),
        }
    }

    /// Fails the transaction if another gateway has taken over.
    fn check_compactor(&self) -> TransactWriteItem {
        let check = ConditionCheck::builder()
            .table_name(self.log.client.table())
            .set_key(Some(meta_key()))
            .condition_expression("#w = :me")
            .expression_attribute_names("#w", COMPACTOR)
            .expression_attribute_values(":me", number(self.compactor))
            .build()
            .expect("all required fields are set");
        TransactWriteItem::builder().condition_check(check).build()
    }

    /// The segment is older than this run, or was written by it and has not changed since it was read. So a late copy of a request
    /// fails.
    fn unchanged_since(&self, read: &Segment) -> Condition {
        Condition {
            text: "#f < :slot OR (#f = :slot AND #e = :read)",
            names: vec![("#f", COMPACTED), ("#e", EDITION)],
            values: vec![(":slot", number(self.slot)), (":read", number(read.edition))],
        }
    }

    fn put_if(&self, segment: &Segment, condition: &Condition) -> TransactWriteItem {
        let put = Put::builder()
            .table_name(self.log.client.table())
            .set_item(Some(segment.item()))
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names()))
            .set_expression_attribute_values(condition.values())
            .build()
            .expect("all required fields are set");
        TransactWriteItem::builder().put(put).build()
    }
}

/// Whether the segment exists in the table.
fn is_stored(segment: &Segment) -> bool {
    segment.compacted > 0
}

fn max_size(tag: u8) -> usize {
    let scattered =
        [Keys::TAG, Waiting::TAG, Joinable::TAG, Stock::TAG, Tasks::TAG, Pools::TAG, Spare::TAG];
    if scattered.contains(&tag) { SMALL_SEGMENT_BYTES } else { SEGMENT_BYTES }
}
