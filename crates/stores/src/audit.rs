//! The reads of the audit trail: the ledger with its hashes, and the entries that say who did what. Rows that cannot be read
//! are named, because finding them is the purpose.

use domain::{
    chain::LedgerItem,
    ledger::Entry,
    ports::{AuditFilter, Cursor, Paged, StoreError},
    time::Timestamp,
};

use crate::{
    Result,
    schema::codec::{Codec, key_bytes, read_key, read_unverified},
    schema::keys::Key,
    schema::page::LedgerPage,
    schema::tables::{LedgerIndex, Pages, Subject},
    tx::{KeyRange, Order, ReadTx, Stored, TypedRead, value},
};

/// The most rows of the index that one call reads.
const SCAN_LIMIT: usize = 20_000;
/// The most index rows that one scan reads.
const CHUNK: usize = 256;

/// The ledger from number `from` on.
pub(crate) fn chain(tx: &dyn ReadTx, from: u64, limit: usize) -> Result<Vec<LedgerItem>> {
    let (least, most) = (key_bytes::<Pages>(&from), key_bytes::<Pages>(&u64::MAX));
    let mut items = Vec::new();
    let codec = tx.codec();
    // A page has at least one entry, so `limit` pages hold enough. A page is not divided, because what is wrong with it stands
    // after its entries.
    let range = KeyRange { least, most, order: Order::Rising, limit };
    tx.find_range(&range, &mut |key, stored| {
        if items.len() >= limit {
            return Ok(());
        }
        let seq = read_key::<Pages>(codec.backend, key)?;
        items.extend(items_of(codec, key, seq, stored).filter(|item| from <= item.seq()));
        Ok(())
    })?;
    Ok(items)
}

/// The entries of one row, and what is wrong with it.
fn items_of(
    codec: Codec,
    key: &[u8],
    seq: u64,
    stored: Stored<'_>,
) -> impl Iterator<Item = LedgerItem> {
    let (mut page, mut wrong) = match value::<Pages>(codec, key, stored) {
        Ok(page) => (page, None),
        // A row with a wrong checksum may still tell which of its entries was changed.
        Err(why) => (unverified_page(stored).unwrap_or_default(), Some(cause(&why))),
    };
    if wrong.is_none() && page.entries.last().is_none_or(|last| last.seq != seq) {
        // The row's key is that of its last entry, which is therefore named by it.
        let last = page.entries.pop();
        let number = last.map_or_else(|| "no number".to_owned(), |last| last.seq.to_string());
        wrong = Some(format!("it has {number} under this one"));
    }
    let entries = page.into_chained().map(LedgerItem::Entry);
    entries.chain(wrong.map(|why| LedgerItem::Unreadable { seq, why }))
}

fn unverified_page(stored: Stored<'_>) -> Option<LedgerPage> {
    match stored {
        Stored::Encoded(bytes) => read_unverified::<Pages>(bytes),
        Stored::Plain | Stored::Value(_) => None,
    }
}

/// The cause alone: which store and table it was is known.
fn cause(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { source, .. } | StoreError::Corrupt { source, .. } => {
            source.to_string()
        }
        StoreError::WrongClock(_) => error.to_string(),
    }
}

/// The entries of the audit trail that match, newest first.
pub(crate) fn trail(tx: &dyn ReadTx, filter: &AuditFilter) -> Result<Paged<Entry>> {
    let least = (Subject::Audit(filter.since.unwrap_or_default()), 0);
    let until = filter.until.unwrap_or_else(Timestamp::most);
    let mut most = (Subject::Audit(until), u64::MAX);
    if let Some(Cursor { at, id }) = filter.from {
        let Some(id) = id.checked_sub(1) else {
            return Ok(Paged { items: Vec::new(), next: None });
        };
        most = most.min((Subject::Audit(at), id));
    }
    let (mut items, mut seen) = (Vec::new(), 0);
    loop {
        let rows = tx.scan::<LedgerIndex>(least..=most, Order::Falling, CHUNK)?;
        let is_end = rows.len() < CHUNK;
        for ((subject, seq), ()) in rows {
            let Subject::Audit(at) = subject else { continue };
            seen += 1;
            let page = tx.get::<Pages>(&seq)?.unwrap_or_default();
            let is_wanted = |entry: &Entry| entry.at == at && filter.matches(entry);
            items.extend(page.entries.into_iter().rev().filter(is_wanted));
            if items.len() >= filter.limit || seen == SCAN_LIMIT {
                return Ok(Paged { items, next: Some(Cursor { at, id: seq }) });
            }
            // An index row has a number of at least 1.
            most = (subject, seq - 1);
        }
        if is_end {
            return Ok(Paged { items, next: None });
        }
    }
}

#[cfg(test)]
mod tests {
    //! Changes of stored pages by somebody who knows the format and writes the right checksum.

    use std::sync::Arc;

    use domain::chain::{Break, Verifier};
    use store_tests::World;

    use super::*;
    use crate::{
        adapter::{StoreAdapter, TransactionRunner, decision},
        backends::{embedded::Embedded, memory::Memory},
        tx::TypedWrite as _,
    };

    /// Fills a store with entries of several sorts.
    async fn live(runner: &Arc<dyn TransactionRunner>) -> Vec<(u64, LedgerPage)> {
        let store = Arc::new(StoreAdapter::new(Arc::clone(runner)));
        let world = World::on(store.clone(), store.clone(), store);
        let served = world.serve(world.turnstile("a"), "t1").await;
        world.fetch(&served).await;
        world.fail(world.turnstile("b"), "ERROR_CAPTCHA_UNSOLVABLE").await;
        let waiting = world.open(world.turnstile("c")).await;
        world.lose_reply(&waiting).await;
        world.store.withdraw(waiting.id, Some(store_tests::admin()), world.now()).await.unwrap();
        run(runner, |tx| tx.scan::<Pages>(0..=u64::MAX, Order::Rising, 1000)).await
    }

    async fn run<T: Send + 'static>(
        runner: &Arc<dyn TransactionRunner>,
        run: impl FnMut(&mut dyn crate::tx::WriteTx) -> Result<T> + Send + 'static,
    ) -> T {
        let (decide, slot) = decision(run);
        runner.decide(decide, crate::adapter::Lane::Normal).await.unwrap();
        slot.take().unwrap()
    }

    async fn write(runner: &Arc<dyn TransactionRunner>, seq: u64, page: LedgerPage) {
        run(runner, move |tx| tx.put::<Pages>(seq, page.clone())).await;
    }

    async fn verify(runner: &Arc<dyn TransactionRunner>) -> Result<(), Break> {
        let items = run(runner, |tx| chain(tx, 0, 1000)).await;
        let mut verifier = Verifier::default();
        items.iter().try_for_each(|item| verifier.check(item))
    }

    async fn every_flipped_bit_is_found(runner: Arc<dyn TransactionRunner>, every: usize) {
        let pages = live(&runner).await;
        verify(&runner).await.unwrap();
        let (mut read, mut unread) = (0, 0);
        for (seq, page) in &pages {
            let bytes = postcard::to_allocvec(page).unwrap();
            for bit in (0..8 * bytes.len()).step_by(every) {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let Ok(changed) = postcard::from_bytes::<LedgerPage>(&changed) else {
                    // Such a row is named as one that cannot be read.
                    unread += 1;
                    continue;
                };
                assert_ne!(changed, *page, "bit {bit} of page {seq} says nothing");
                // Nothing says what the number of the very first entry was.
                let was_first = changed.entries.first().is_none_or(|first| first.seq != 1);
                let is_first = *seq == pages[0].0 && page.entries.len() > 1 && was_first;
                write(&runner, *seq, changed).await;
                let found = verify(&runner).await.expect_err("a changed bit was not found");
                let first = seq + 1 - page.entries.len() as u64;
                // A page without hashes looks like one of an earlier release. Its follower does not begin the chain.
                let is_near = is_first || (first..=seq + 1).contains(&found.first);
                assert!(is_near, "{found} in {first} to {seq}");
                read += 1;
            }
            write(&runner, *seq, page.clone()).await;
        }
        assert!(read > 300 && unread > 50, "{read} read, {unread} not");
        verify(&runner).await.unwrap();
    }

    #[tokio::test]
    async fn every_bit_of_every_page_counts() {
        every_flipped_bit_is_found(Arc::new(Memory::new(None)), 1).await;
    }

    #[tokio::test]
    async fn bits_of_encoded_pages_count_too() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), None).unwrap();
        every_flipped_bit_is_found(Arc::new(store), 31).await;
    }

    #[tokio::test]
    async fn a_page_that_is_gone_or_stands_elsewhere_is_found() {
        let runner: Arc<dyn TransactionRunner> = Arc::new(Memory::new(None));
        let pages = live(&runner).await;
        let (seq, page) = pages[2].clone();
        run(&runner, move |tx| tx.take::<Pages>(&seq).map(drop)).await;
        let next = pages[3].1.entries[0].seq;
        assert_eq!(verify(&runner).await.unwrap_err().seq, next);
        write(&runner, seq, page.clone()).await;
        let last = pages.last().unwrap().0;
        write(&runner, last + 5, page).await;
        assert!(verify(&runner).await.unwrap_err().seq <= last + 5);
    }
}
