//! For tests and benches: what a store asks of its table, and whether the table is in order.

use std::{collections::BTreeMap, fmt, sync::Arc};

use domain::ports::StoreError;

use crate::{Backend, OpenError, remote::Key, tables::LAST_TAG};

use super::{
    layout::{
        BLOCK, Body, Sheet, Value, decode, log_partition, read_commit, sheet_partition, table_end,
        table_least,
    },
    link::{DynamoDbUse, Part},
    log::Log,
};

/// A store's table, seen from beside.
pub struct DynamoDbProbe(pub(super) Arc<Log>);

/// What is in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Commits in the log.
    pub commits: u64,
    /// How many of them are filed.
    pub filed: u64,
    /// Sheets.
    pub sheets: usize,
    /// Rows that are there.
    pub rows: usize,
}

impl DynamoDbProbe {
    /// Opens the store at the URL, and counts.
    pub async fn connect(url: &str) -> Result<(Backend, Self), OpenError> {
        let (backend, log) = super::open(url).await?;
        Ok((backend, Self(log)))
    }

    /// What was asked so far.
    pub fn usage(&self) -> DynamoDbUse {
        self.0.link.usage()
    }

    /// Reads everything twice, from the whole log and from the sheets, and compares. Panics where they differ, or where the
    /// sheets of a table have a gap between them. For a table from whose log nothing has gone yet.
    pub async fn take_stock(&self) -> Result<Inventory, StoreError> {
        self.0.read_on().await?;
        self.0.look_at_head().await?;
        // The changes are copied before the sheets are read: a filer that works meanwhile forgets what it has filed, and the
        // sheets that were read before would lack it. A change that a sheet has already is put there once more.
        let (slot, filed, recent) = {
            let state = self.0.state();
            (state.slot, state.filed, state.recent.clone())
        };
        let told = self.replay(slot).await?;
        let mut all = Inventory { commits: slot, filed, ..Inventory::default() };
        let mut seen: BTreeMap<Key, Value> = BTreeMap::new();
        for tag in 1..=LAST_TAG {
            let sheets = self.sheets(tag).await?;
            all.sheets += sheets.len();
            let mut edge = table_least(tag);
            for sheet in &sheets {
                assert_eq!(sheet.least, edge, "a gap between the sheets of table {tag}");
                let within = sheet.least.clone()..sheet.until.clone();
                assert!(sheet.rows.iter().all(|(key, _)| within.contains(key)), "a row is astray");
                edge = sheet.until.clone();
            }
            assert!(sheets.is_empty() || edge == table_end(tag), "table {tag} ends before its end");
            seen.extend(sheets.into_iter().flat_map(|sheet| sheet.rows));
        }
        for (key, (_, value)) in recent {
            match value {
                Some(value) => seen.insert(key, value),
                None => seen.remove(&key),
            };
        }
        assert!(self.0.state().slot == slot, "somebody writes while stock is taken");
        assert!(seen == told, "the sheets tell something else than the log");
        all.rows = seen.len();
        Ok(all)
    }

    async fn sheets(&self, tag: u8) -> Result<Vec<Sheet>, StoreError> {
        let part = Part { partition: sheet_partition(tag), ..Part::default() };
        self.0.link.query(&part).await?.iter().map(Sheet::read).collect()
    }

    /// What the log says from its beginning.
    async fn replay(&self, until: u64) -> Result<BTreeMap<Key, Value>, StoreError> {
        let mut rows = BTreeMap::new();
        for block in 0..=until / BLOCK {
            let part = Part { partition: log_partition(block * BLOCK), ..Part::default() };
            for item in self.0.link.query(&part).await? {
                let (_, _, body) = read_commit(&item)?;
                let body = match body {
                    Body::Here(bytes) => bytes,
                    Body::Apart(apart) => self.0.fetch(apart).await?,
                };
                for (key, value) in decode(&body)? {
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

impl fmt::Debug for DynamoDbProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynamoDbProbe").field(&self.usage()).finish()
    }
}
