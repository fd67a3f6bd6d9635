//! For unit tests: a server within the process, and gateways that decide on it one after the other, each in a lane of its own.

use std::{collections::BTreeSet, fmt, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use store_tests::World;

use crate::{
    Result,
    adapter::{DecideFn, Extent, Lane, ReadFn, StoreAdapter, TransactionRunner, decision},
    decisions::{RecoveryRecord, restore, support::lanes},
    schema::{codec::Codec, tables::Table},
    tx::Order,
};

use super::{
    BackendKind, Commit, Conflict, OptimisticTx, RawKey, RowCache, VersionedRow, Write,
    recovery::RecoveryBuffer,
};

pub(crate) const KIND: BackendKind =
    BackendKind { codec: Codec::plain("memory"), max_bytes: 1 << 20, refuses: |_| None };

/// All rows of the server. A cache is enough for that.
#[derive(Clone, Default)]
pub(crate) struct InProcessServer(pub(crate) Arc<Mutex<RowCache>>);

/// A gateway with what it would restore after a loss.
pub(crate) struct InProcessGateway {
    server: InProcessServer,
    lane: u8,
    recovery: Mutex<RecoveryBuffer>,
}

// === impl InProcessServer ===

impl InProcessServer {
    /// Gateways in these lanes, with one clock.
    pub(crate) fn gateways(&self, lanes: &[u8]) -> Vec<(Arc<InProcessGateway>, World)> {
        let mut all: Vec<(Arc<InProcessGateway>, World)> = Vec::new();
        for lane in lanes {
            let recovery = Mutex::new(RecoveryBuffer::new(KIND.codec));
            let gateway = InProcessGateway { server: self.clone(), lane: *lane, recovery };
            let gateway = Arc::new(gateway);
            let store = Arc::new(StoreAdapter::new(gateway.clone()));
            let mut world = World::on(store.clone(), store.clone(), store.clone());
            if let Some((_, first)) = all.first() {
                world = first.clone();
                (world.store, world.records, world.archive) = (store.clone(), store.clone(), store);
            }
            all.push((gateway, world));
        }
        all
    }

    /// The lanes above 0 that a table of sums has rows in.
    pub(crate) fn lanes_of<T: Table>(&self) -> BTreeSet<u8> {
        let rows = self.0.lock();
        let of_table = RawKey::from([T::TAG])..=RawKey::from([T::TAG + 1]);
        let keys: Vec<&RawKey> = rows.range(&of_table, Order::Rising).map(|(key, _)| key).collect();
        let is_used = |lane: &u8| keys.iter().any(|key| lanes::is_of(*lane, key));
        (1..=lanes::LAST_LANE).filter(is_used).collect()
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        self.0.lock().apply_conflict(Conflict::Row(key.into(), None));
    }
}

// === impl InProcessGateway ===

impl InProcessGateway {
    pub(crate) fn records(&self) -> Vec<RecoveryRecord> {
        self.recovery.lock().records()
    }

    /// Restores what gateways of a server knew that is gone.
    pub(crate) async fn restore(&self, mut records: Vec<RecoveryRecord>, world: &World) {
        records.sort_by_key(RecoveryRecord::order);
        for record in records {
            let now = world.now();
            let (decide, result) = decision(move |tx| restore(tx, &record, now));
            self.decide(decide, Lane::Normal).await.unwrap();
            result.take().unwrap();
        }
    }
}

#[async_trait]
impl TransactionRunner for InProcessGateway {
    async fn decide(&self, mut decide: DecideFn, _: Lane) -> Result<()> {
        let mut rows = self.server.0.lock();
        let mut tx = OptimisticTx::new(KIND, &rows, false).in_lane(self.lane);
        tx.set_savepoint();
        if !decide(&mut tx) {
            tx.rollback_to_savepoint();
        }
        let mut commit = Commit::new(KIND, tx.finish());
        commit.number_pages(&rows)?;
        let mut recovery = self.recovery.lock();
        recovery.record_books_read(&commit.reads, &rows);
        recovery.record(&commit.writes, &rows);
        for (key, write) in commit.writes {
            let row = match write {
                Write::Put(bytes) => Some(VersionedRow { version: commit.version, bytes }),
                Write::Delete => None,
            };
            // Unlike the cache of a gateway, this one keeps all rows.
            rows.apply_conflict(Conflict::Row(key, row));
        }
        Ok(())
    }

    async fn read(&self, mut read: ReadFn, _: Extent) -> Result<()> {
        read(&OptimisticTx::new(KIND, &self.server.0.lock(), false));
        Ok(())
    }
}

impl fmt::Debug for InProcessGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessGateway").field("lane", &self.lane).finish_non_exhaustive()
    }
}
