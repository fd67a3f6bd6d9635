//! The rows that an intent reads for its guard: it is on the path of every submission, and on a shared store each row is
//! compared at the commit.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use domain::{
    claim::Admission, declarations::Guard, id::Nonce, lease::Lease, ledger::Entry, solve::Decision,
};
use store_tests::World;

use super::advance;
use crate::{
    Result,
    adapter::{StoreAdapter, TransactionRunner as _, decision},
    backends::memory::Memory,
    decisions::support::context::DecisionCtx,
    schema::{
        codec::Codec,
        tables::{Claims, Memos, Table as _},
    },
    tx::{KeyRange, ReadRow, ReadTx, RowKey, RowValue, WriteTx},
};

/// Counts, by table, the rows that are read by their key.
struct Counting<'a> {
    tx: &'a mut dyn WriteTx,
    read: RefCell<BTreeMap<u8, usize>>,
}

impl ReadTx for Counting<'_> {
    fn codec(&self) -> Codec {
        self.tx.codec()
    }

    fn find(&self, key: &[u8], read: ReadRow<'_>) -> Result<()> {
        *self.read.borrow_mut().entry(key[0]).or_default() += 1;
        self.tx.find(key, read)
    }

    fn find_range(&self, range: &KeyRange, read: ReadRow<'_>) -> Result<()> {
        self.tx.find_range(range, read)
    }
}

impl WriteTx for Counting<'_> {
    fn write(&mut self, key: RowKey<'_>, value: Box<dyn RowValue>) -> Result<()> {
        self.tx.write(key, value)
    }

    fn remove(&mut self, key: RowKey<'_>, read: ReadRow<'_>) -> Result<()> {
        self.tx.remove(key, read)
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<()> {
        self.tx.append(entries)
    }
}

/// The claims and the memos that an intent reads.
async fn read_by_intent(memory: &Memory, world: &World, lease: Lease) -> (usize, usize) {
    let now = world.now();
    let intend = Decision::Intend { nonce: Nonce::from_number(1), guard: Guard::open() };
    let (decide, result) = decision(move |tx| {
        let mut counting = Counting { tx, read: RefCell::default() };
        DecisionCtx::run(&mut counting, now, |ctx| advance(ctx, &lease, &intend))?;
        Ok(counting.read.into_inner())
    });
    memory.decide(decide, crate::adapter::Lane::Normal).await.unwrap();
    let read = result.take().unwrap();
    let count = |tag| read.get(&tag).copied().unwrap_or_default();
    (count(Claims::TAG), count(Memos::TAG))
}

#[tokio::test]
async fn an_intent_reads_no_claim_but_those_that_joined() {
    let memory = Arc::new(Memory::new(None));
    let store = Arc::new(StoreAdapter::new(memory.clone()));
    let world = World::on(store.clone(), store.clone(), store);
    let alone = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&alone).await;
    assert_eq!(read_by_intent(&memory, &world, lease).await, (0, 1), "only the pauses");
    let first = world.open(world.image(b"a picture")).await;
    for _ in 0..2 {
        let joined = world.admit(world.image(b"a picture")).await;
        assert!(matches!(joined, Admission::Joined(_)));
    }
    let lease = world.lease_of(&first).await;
    assert_eq!(read_by_intent(&memory, &world, lease).await, (2, 1), "not its own");
}
