//! How many rows a query reads.

use std::cell::Cell;

use domain::{
    challenge::Kind,
    id::{Project, WorkerName},
    ledger::{Counts, Total},
};

use super::*;
use crate::{
    adapter::{Extent, TransactionRunner as _},
    backends::memory::Memory,
    schema::codec::Codec,
    tx::{KeyRange, ReadRow},
};

/// Counts the rows that are read.
struct Counting<'t> {
    tx: &'t dyn ReadTx,
    rows: Cell<usize>,
}

impl ReadTx for Counting<'_> {
    fn codec(&self) -> Codec {
        self.tx.codec()
    }

    fn find(&self, key: &[u8], read: ReadRow<'_>) -> Result<()> {
        self.rows.set(self.rows.get() + 1);
        self.tx.find(key, read)
    }

    fn find_range(&self, range: &KeyRange, read: ReadRow<'_>) -> Result<()> {
        self.tx.find_range(range, &mut |key, stored| {
            self.rows.set(self.rows.get() + 1);
            read(key, stored)
        })
    }
}

fn total(day: u32, worker: &str) -> Total {
    let (worker, project) = (WorkerName::new(worker).unwrap(), Project::new("shop").unwrap());
    let counts = Counts { opened: 1, ..Counts::default() };
    Total::new(Day::from_number(day), worker, project, Kind::Turnstile, counts)
}

#[tokio::test]
async fn a_workers_report_reads_its_own_rows_only() {
    let memory = Memory::new(None);
    let write = |tx: &mut dyn crate::tx::WriteTx| {
        for day in 0..400 {
            for worker in 0..20 {
                ledger::add_to_total(tx, total(day, &format!("w{worker}"))).unwrap();
            }
        }
        true
    };
    memory.decide(Box::new(write), crate::adapter::Lane::Normal).await.unwrap();
    let read = |tx: &dyn ReadTx| {
        let tx = Counting { tx, rows: Cell::new(0) };
        let scope = Scope::Worker(WorkerName::new("w1").unwrap());
        let (from, to) = (Day::from_number(0), Day::from_number(399));
        let found = totals(&tx, &TotalsFilter { scope, from, to }).unwrap();
        assert_eq!((found.len(), tx.rows.get()), (400, 400));
    };
    memory.read(Box::new(read), Extent::Scan).await.unwrap();
}
