//! For tests and benchmarks: counts the requests of a store, and checks its table.

use std::{collections::BTreeMap, sync::Arc};

use aws_sdk_dynamodb::types::{Delete, TransactWriteItem};
use domain::ports::StoreError;

use crate::{Backend, OpenError, optimistic::RawKey, schema::tables::LAST_TAG};

use super::{
    connection::{DynamoDbUse, ItemRange},
    error::unavailable,
    layout::{
        BLOCK, GC_AT, Item, OVERFLOW, PK, SK, Segment, StoredValue, decode, log_partition,
        read_commit, segment_partition, slot_key, table_end, table_least, text,
    },
    log::Log,
};

/// Access to the table of an open store.
pub struct DynamoDbProbe(pub(super) Arc<Log>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub commits: u64,
    /// How many of the commits are compacted.
    pub compacted: u64,
    pub segments: usize,
    pub rows: usize,
}

impl DynamoDbProbe {
    pub async fn connect(url: &str) -> Result<(Backend, Self), OpenError> {
        let (backend, log) = super::open(url, None).await?;
        Ok((backend, Self(log)))
    }

    pub fn usage(&self) -> DynamoDbUse {
        *self.0.client.usage.lock()
    }

    /// Reads everything twice, from the whole log and from the segments, and compares. Panics if they differ, or if there is a gap
    /// between the segments of a table. Only for a table whose log is still complete.
    pub async fn take_stock(&self) -> Result<Inventory, StoreError> {
        self.0.catch_up().await?;
        self.0.refresh_meta().await?;
        // Copy the changes before reading the segments: a compaction in between drops the changes it has merged, and segments
        // that were read before it would lack them. Applying a change twice is harmless.
        let (slot, compacted, recent) = {
            let state = self.0.state();
            (state.slot, state.compacted, state.recent.clone())
        };
        let replayed = self.replay(slot).await?;
        let mut all = Inventory { commits: slot, compacted, ..Inventory::default() };
        let mut seen: BTreeMap<RawKey, StoredValue> = BTreeMap::new();
        for tag in 1..=LAST_TAG {
            let segments = self.segments(tag).await?;
            all.segments += segments.len();
            let mut edge = table_least(tag);
            for segment in &segments {
                assert_eq!(segment.least, edge, "a gap between the segments of table {tag}");
                let within = segment.least.clone()..segment.until.clone();
                assert!(
                    segment.rows.iter().all(|(key, _)| within.contains(key)),
                    "a row is in the wrong segment"
                );
                edge = segment.until.clone();
            }
            assert!(
                segments.is_empty() || edge == table_end(tag),
                "table {tag} ends before its end"
            );
            seen.extend(segments.into_iter().flat_map(|segment| segment.rows));
        }
        for (key, (_, value)) in recent {
            match value {
                Some(value) => seen.insert(key, value),
                None => seen.remove(&key),
            };
        }
        assert!(self.0.state().slot == slot, "another process wrote during the check");
        assert!(seen == replayed, "the segments differ from the log");
        all.rows = seen.len();
        Ok(all)
    }

    /// Sets how many commits may be behind before new work is slowed down.
    pub fn set_max_lag(&self, commits: u64) {
        self.0.state().max_lag = commits;
    }

    /// How many commits are not compacted, as far as this process knows.
    pub fn lag(&self) -> u64 {
        let state = self.0.state();
        state.slot - state.compacted
    }

    /// Deletes a commit, as time to live does.
    pub async fn delete_commit(&self, slot: u64) -> Result<(), StoreError> {
        self.delete(slot_key(slot)).await
    }

    async fn delete(&self, key: Item) -> Result<(), StoreError> {
        let delete = Delete::builder().table_name(self.0.client.table());
        let delete = delete.set_key(Some(key)).build();
        let delete = delete.expect("all required fields are set");
        let action = TransactWriteItem::builder().delete(delete).build();
        self.0.client.transact(vec![action]).await?;
        Ok(())
    }

    /// Deletes the overflow items that expire, as time to live does in the end. Returns how many are left.
    pub async fn expire_overflow(&self) -> Result<usize, StoreError> {
        let client = &self.0.client;
        let scan = client.client.scan().table_name(client.table()).consistent_read(true);
        let scan = scan.filter_expression("begins_with(#p, :p)");
        let scan = scan.expression_attribute_names("#p", PK);
        let scan = scan.expression_attribute_values(":p", text(OVERFLOW));
        let found = scan.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let (expiring, kept): (Vec<Item>, Vec<Item>) = found
            .map_err(|error| unavailable(error.to_string()))?
            .into_iter()
            .partition(|item| item.contains_key(GC_AT));
        for mut item in expiring {
            item.retain(|name, _| [PK, SK].contains(&name.as_str()));
            self.delete(item).await?;
        }
        Ok(kept.len())
    }

    async fn segments(&self, tag: u8) -> Result<Vec<Segment>, StoreError> {
        let part = ItemRange { partition: segment_partition(tag), ..ItemRange::default() };
        self.0.client.query(&part).await?.iter().map(Segment::read).collect()
    }

    /// All rows according to the log.
    async fn replay(&self, until: u64) -> Result<BTreeMap<RawKey, StoredValue>, StoreError> {
        let mut rows = BTreeMap::new();
        for block in 0..=until / BLOCK {
            let part =
                ItemRange { partition: log_partition(block * BLOCK), ..ItemRange::default() };
            for item in self.0.client.query(&part).await? {
                let (_, _, body) = read_commit(&item)?;
                for (key, value) in decode(&self.0.value(&body).await?)? {
                    match value {
                        Some(value) => rows.insert(key, value),
                        None => rows.remove(&key),
                    };
                }
            }
        }
        Ok(rows)
    }
}
