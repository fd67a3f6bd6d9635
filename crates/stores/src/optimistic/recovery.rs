//! The records this process wrote recently, and all of its records that are still in progress. A backend restores them when its
//! server loses data. The buffer is in memory only: it protects against a server that loses writes, not against the loss of
//! both.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    decisions::{PAUSES_MEMO, RecoveryRecord},
    schema::codec::{Codec, key_bytes, read_key},
    schema::keys::Text,
    schema::tables::{
        Archived, Authorised, Challenges, Claims, DeadLetters, Holders, Memos, Pages, Pools,
        Solves, Spending, Table, Totals,
    },
};

use super::{RawKey, ReadSet, RowCache, Write};

/// The latest value of each row.
#[derive(Debug)]
pub(crate) struct RecoveryBuffer {
    codec: Codec,
    rows: HashMap<RawKey, BufferedRow>,
    /// Rows that may be evicted, oldest first. A row that was written again since has more than one entry.
    finished: VecDeque<(u64, RawKey)>,
    /// The number of the last write.
    written: u64,
    /// Bytes of the rows that may be evicted.
    size: usize,
    /// Bytes of the rows in progress.
    open_size: usize,
}

#[derive(Debug)]
struct BufferedRow {
    bytes: Arc<[u8]>,
    /// The number of the write that stored it.
    written: u64,
    /// Rows in progress are never evicted.
    in_progress: bool,
}

/// Enough for the last minutes of a busy gateway, not counting the rows in progress.
const MAX_BYTES: usize = 32 << 20;
/// Rows in progress are kept beyond that. At this size the largest challenges go, because pictures take most of it.
const MAX_OPEN_BYTES: usize = 128 << 20;
/// The memory a row takes besides its bytes.
const ROW_OVERHEAD: usize = 160;
/// Beyond this many surplus entries, `finished` is cleared of rows that were written again.
const MAX_SURPLUS: usize = 1000;

/// The tables whose rows are recorded, in the order in which they are restored. Of the memos only the pauses are.
const RECORDED: [u8; 11] = [
    Holders::TAG,
    Memos::TAG,
    Challenges::TAG,
    Solves::TAG,
    Claims::TAG,
    DeadLetters::TAG,
    Pools::TAG,
    Pages::TAG,
    Totals::TAG,
    Spending::TAG,
    Authorised::TAG,
];

// === impl RecoveryBuffer ===

impl RecoveryBuffer {
    pub(crate) fn new(codec: Codec) -> Self {
        Self {
            codec,
            rows: HashMap::new(),
            finished: VecDeque::new(),
            written: 0,
            size: 0,
            open_size: 0,
        }
    }

    /// Records committed writes. Archived history is left out, because the source store sends it again. A solve that another
    /// gateway admitted is recorded together with its cached challenge: a solve cannot continue without its challenge, and
    /// the other gateway may be gone.
    pub(crate) fn record(&mut self, writes: &BTreeMap<RawKey, Write>, cache: &RowCache) {
        if writes.keys().any(|key| key[0] == Archived::TAG) {
            return;
        }
        for (key, write) in writes.iter().filter(|(key, _)| restore_order(key).is_some()) {
            match write {
                Write::Put(bytes) => {
                    self.put(key, bytes.clone());
                    self.record_challenge_of(key, cache);
                }
                Write::Delete => self.remove(key),
            }
        }
        self.evict();
        self.drop_large_challenges();
    }

    /// Records the books of budgets that a commit has read, before its own writes. A limit depends on the lanes of all
    /// gateways, and the one that wrote a lane may be gone when the server loses it.
    pub(crate) fn record_books_read(&mut self, reads: &ReadSet, cache: &RowCache) {
        for key in reads.rows.keys().filter(|key| key[0] == Spending::TAG) {
            let Some(current) = cache.get(key) else { continue };
            if self.rows.get(key).is_none_or(|known| known.bytes != current.bytes) {
                self.put(key, current.bytes.clone());
            }
        }
    }

    fn record_challenge_of(&mut self, solve: &RawKey, cache: &RowCache) {
        let in_progress = self.rows.get(solve).is_some_and(|row| row.in_progress);
        let Some(key) =
            challenge_of(solve).filter(|key| in_progress && !self.rows.contains_key(key))
        else {
            return;
        };
        if let Some(challenge) = cache.get(&key) {
            self.put(&key, challenge.bytes.clone());
        }
    }

    /// All records, in the order in which they depend on each other.
    pub(crate) fn records(&self) -> Vec<RecoveryRecord> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable_by(|a, b| (restore_order(a.0), a.0).cmp(&(restore_order(b.0), b.0)));
        rows.into_iter().filter_map(|(key, row)| record(self.codec, key, &row.bytes)).collect()
    }

    /// Drops the ledger pages, which get new numbers when they are restored.
    pub(crate) fn drop_pages(&mut self) {
        let pages: Vec<RawKey> =
            self.rows.keys().filter(|key| key[0] == Pages::TAG).cloned().collect();
        for key in &pages {
            self.remove(key);
        }
    }

    fn put(&mut self, key: &RawKey, bytes: Arc<[u8]>) {
        self.remove(key);
        self.written += 1;
        let is_finished = !self.is_in_progress(key, &bytes);
        let row = BufferedRow { bytes, written: self.written, in_progress: true };
        self.open_size += size_of(key, &row);
        self.rows.insert(key.clone(), row);
        if is_finished {
            self.mark_finished(key);
            if let Some(challenge) = challenge_of(key) {
                self.mark_finished(&challenge);
            }
        }
    }

    /// Allows a row to be evicted.
    fn mark_finished(&mut self, key: &RawKey) {
        if let Some(row) = self.rows.get_mut(key).filter(|row| row.in_progress) {
            row.in_progress = false;
            let size = size_of(key, row);
            self.open_size -= size;
            self.size += size;
            self.finished.push_back((row.written, key.clone()));
        }
    }

    fn remove(&mut self, key: &RawKey) {
        if let Some(row) = self.rows.remove(key) {
            let size = if row.in_progress { &mut self.open_size } else { &mut self.size };
            *size = size.saturating_sub(size_of(key, &row));
        }
    }

    /// Drops the largest challenges of solves in progress when they take too much memory. After a loss, such a solve goes on
    /// only if another gateway has its challenge.
    fn drop_large_challenges(&mut self) {
        if self.open_size <= MAX_OPEN_BYTES {
            return;
        }
        let open = self.rows.iter().filter(|(key, row)| row.in_progress && is_challenge(key));
        let mut challenges: Vec<_> =
            open.map(|(key, row)| (row.bytes.len(), key.clone())).collect();
        challenges.sort_unstable();
        let mut dropped = 0;
        // Much at a time, so that not every further write looks for the largest ones.
        while self.open_size > MAX_OPEN_BYTES / 4 * 3
            && let Some((_, key)) = challenges.pop()
        {
            self.remove(&key);
            dropped += 1;
        }
        tracing::warn!(
            dropped,
            kept_bytes = self.open_size,
            "solves in progress take too much memory, their largest challenges cannot be restored after data loss"
        );
    }

    fn evict(&mut self) {
        while self.size > MAX_BYTES {
            let Some((written, key)) = self.finished.pop_front() else { return };
            if self.rows.get(&key).is_some_and(|row| row.written == written) {
                self.remove(&key);
            }
        }
        if self.finished.len() > 2 * self.rows.len() + MAX_SURPLUS {
            let rows = &self.rows;
            self.finished
                .retain(|(written, key)| rows.get(key).is_some_and(|row| row.written == *written));
        }
    }

    fn is_in_progress(&self, key: &RawKey, bytes: &[u8]) -> bool {
        match key[0] {
            // A challenge is in progress as long as its solve, which was recorded before it. It may be large, so it is not decoded.
            Challenges::TAG => {
                let solve: RawKey = [&[Solves::TAG], &key[1..]].concat().into();
                self.rows.get(&solve).is_some_and(|row| row.in_progress)
            }
            // Most rows are pages. They are not decoded either.
            Pages::TAG | Totals::TAG | DeadLetters::TAG => false,
            _ => record(self.codec, key, bytes).is_some_and(|record| record.is_under_way()),
        }
    }
}

fn size_of(key: &RawKey, row: &BufferedRow) -> usize {
    ROW_OVERHEAD + key.len() + row.bytes.len()
}

fn is_challenge(key: &RawKey) -> bool {
    key[0] == Challenges::TAG
}

/// The key of a solve's challenge.
fn challenge_of(solve: &RawKey) -> Option<RawKey> {
    (solve[0] == Solves::TAG).then(|| [&[Challenges::TAG], &solve[1..]].concat().into())
}

/// The place of a row in the order of restoring; `None`: the row is not recorded.
fn restore_order(key: &RawKey) -> Option<usize> {
    if key[0] == Memos::TAG && **key != *pauses_key() {
        return None;
    }
    RECORDED.iter().position(|tag| *tag == key[0])
}

fn pauses_key() -> Vec<u8> {
    key_bytes::<Memos>(&Text::new(PAUSES_MEMO))
}

fn record(codec: Codec, key: &RawKey, bytes: &[u8]) -> Option<RecoveryRecord> {
    use RecoveryRecord as Record;
    fn read<T: Table>(
        (codec, key, bytes): (Codec, &RawKey, &[u8]),
        record: impl FnOnce(T::Key, T::Value) -> Record,
    ) -> Option<Record> {
        let value = codec.read_row::<T>(key, bytes).ok()?;
        Some(record(read_key::<T>(codec.backend, key).ok()?, value))
    }
    let row = (codec, key, bytes);
    match key[0] {
        Holders::TAG => read::<Holders>(row, Record::Holder),
        Challenges::TAG => read::<Challenges>(row, Record::Challenge),
        Solves::TAG => read::<Solves>(row, |_, solve| Record::Solve(solve.into())),
        Claims::TAG => read::<Claims>(row, |_, claim| Record::Claim(claim.into())),
        DeadLetters::TAG => read::<DeadLetters>(row, |_, letter| Record::DeadLetter(letter.into())),
        Pools::TAG => read::<Pools>(row, |_, pool| Record::Pool(pool.into())),
        Pages::TAG => read::<Pages>(row, Record::Page),
        Totals::TAG => read::<Totals>(row, |key, total| Record::Total(key, total.into())),
        Spending::TAG => read::<Spending>(row, Record::Spent),
        Authorised::TAG => read::<Authorised>(row, Record::Authorised),
        Memos::TAG => {
            let bytes = codec.read_row::<Memos>(key, bytes).ok()?;
            postcard::from_bytes(&bytes).ok().map(Record::Pauses)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        schema::tables::HolderRow,
        tx::{RowKey, RowValue},
    };

    fn row(key: &[u8], value: &dyn RowValue) -> Write {
        let mut bytes = Vec::new();
        let key = RowKey { bytes: key, table: "x", is_plain: false, holds_secret: false };
        Codec::plain("x").write_row(key, value, &mut bytes).unwrap();
        Write::Put(bytes.into())
    }

    fn page(seq: u64, size: usize) -> (RawKey, Write) {
        let key: RawKey = key_bytes::<Pages>(&seq).into();
        (key, Write::Put(vec![0; size].into()))
    }

    #[test]
    fn the_oldest_finished_row_is_evicted_first() {
        let mut buffer = RecoveryBuffer::new(Codec::plain("x"));
        for seq in 0..100 {
            buffer.record(&BTreeMap::from([page(seq, 1 << 20)]), &RowCache::default());
        }
        assert!(buffer.size <= MAX_BYTES + (1 << 21));
        assert!(!buffer.rows.contains_key(&page(0, 0).0));
        assert!(buffer.rows.contains_key(&page(99, 0).0));
    }

    #[test]
    fn a_row_in_progress_is_not_evicted() {
        let mut buffer = RecoveryBuffer::new(Codec::plain("x"));
        let key = key_bytes::<Holders>(&domain::id::HolderId::from_number(1));
        let lease = HolderRow::new(domain::time::Timestamp::from_millis(5));
        let held = row(&key, &lease);
        buffer.record(&BTreeMap::from([(key.into(), held)]), &RowCache::default());
        for seq in 0..100 {
            buffer.record(&BTreeMap::from([page(seq, 1 << 20)]), &RowCache::default());
        }
        assert!(
            matches!(buffer.records().as_slice(), [RecoveryRecord::Holder(_, row)] if *row == lease)
        );
    }

    #[test]
    fn of_rows_in_progress_the_largest_challenges_go_first() {
        let mut buffer = RecoveryBuffer::new(Codec::plain("x"));
        let mut put = |tag: u8, number: u8, size: usize| {
            let key: RawKey = [tag, number].as_slice().into();
            let row = BufferedRow { bytes: vec![0; size].into(), written: 1, in_progress: true };
            buffer.open_size += size_of(&key, &row);
            buffer.rows.insert(key, row);
        };
        for number in 0..100 {
            put(Challenges::TAG, number, 1 << 20);
            put(Challenges::TAG, 100 + number, 1 << 10);
            put(Solves::TAG, number, 1 << 19);
        }
        let (key, write) = page(1, 10);
        buffer.record(&BTreeMap::from([(key, write)]), &RowCache::default());
        assert!(buffer.open_size <= MAX_OPEN_BYTES, "{}", buffer.open_size);
        let rest = |tag: u8| buffer.rows.keys().filter(|key| key[0] == tag).count();
        assert_eq!(rest(Solves::TAG), 100);
        let small = buffer.rows.keys().filter(|key| is_challenge(key) && key[1] >= 100).count();
        assert!(small == 100 && rest(Challenges::TAG) < 200, "{}", rest(Challenges::TAG));
        let size: usize = buffer.rows.iter().map(|(key, row)| size_of(key, row)).sum();
        assert_eq!(buffer.open_size + buffer.size, size, "nothing is counted twice");
    }

    #[test]
    fn a_row_written_many_times_takes_the_memory_of_one() {
        let mut buffer = RecoveryBuffer::new(Codec::plain("x"));
        let day = domain::time::Day::from_number(1);
        for count in 0..100_000_u32 {
            let key = key_bytes::<Authorised>(&day);
            let authorised = row(&key, &count);
            let writes = BTreeMap::from([(key.into(), authorised), page(1, 10)]);
            buffer.record(&writes, &RowCache::default());
        }
        assert!(buffer.finished.len() < 2000, "{}", buffer.finished.len());
        assert_eq!(buffer.size, ROW_OVERHEAD + 9 + 10);
        assert!(matches!(buffer.records().as_slice(), [RecoveryRecord::Authorised(_, 99_999)]));
    }

    #[test]
    fn a_deleted_row_is_not_restored() {
        let mut buffer = RecoveryBuffer::new(Codec::plain("x"));
        let (key, write) = page(1, 10);
        buffer.record(&BTreeMap::from([(key.clone(), write)]), &RowCache::default());
        buffer.record(&BTreeMap::from([(key, Write::Delete)]), &RowCache::default());
        assert_eq!((buffer.rows.len(), buffer.size), (0, 0));
    }
}
