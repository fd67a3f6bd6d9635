//! What this process wrote lately, and everything of its own that is still under way: to be brought back should the
//! server forget it. In memory only: it covers a server that loses writes, not a process that dies with them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    codec::{read_key, read_row},
    rules::Relic,
    tables::{
        Archived, Authorised, Challenges, Claims, DeadLetters, Holders, Pages, Pools, Solves,
        Spending, Table, Totals,
    },
};

use super::{Key, Write};

/// The latest version of each row.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    rows: HashMap<Key, Line>,
    /// What may be forgotten, oldest first; a row that was noted again since stands there more than once.
    over: VecDeque<(u64, Key)>,
    noted: u64,
    /// Bytes of what may be forgotten.
    size: usize,
}

#[derive(Debug)]
struct Line {
    bytes: Arc<[u8]>,
    noted: u64,
    /// Not over: it is kept as long as that lasts.
    is_under_way: bool,
}

/// Room for the last minutes of a busy gateway, besides what is under way.
const MOST_BYTES: usize = 32 << 20;
/// What a line costs besides its bytes.
const LINE: usize = 160;
/// Rows noted again stand in the queue more than once; beyond this it is cleared of them.
const CROWDED: usize = 1000;

// === impl Journal ===

impl Journal {
    /// Notes what was committed. An archive that forgets is told again by its store, from where it stands.
    pub(crate) fn note(&mut self, writes: &BTreeMap<Key, Write>) {
        if writes.keys().any(|key| key[0] == Archived::TAG) {
            return;
        }
        for (key, write) in writes.iter().filter(|(key, _)| is_noted(key)) {
            match write {
                Write::Put(bytes) => self.put(key, bytes.clone()),
                Write::Gone => self.remove(key),
            }
        }
        self.shrink();
    }

    /// Everything noted, what others build on first.
    pub(crate) fn relics(&self, backend: &'static str) -> Vec<Relic> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable_by(|a, b| (place(a.0), a.0).cmp(&(place(b.0), b.0)));
        rows.into_iter().filter_map(|(key, line)| relic(backend, key, &line.bytes)).collect()
    }

    /// Forgets the pages, which are numbered anew when they are brought back.
    pub(crate) fn forget_pages(&mut self) {
        let pages: Vec<Key> =
            self.rows.keys().filter(|key| key[0] == Pages::TAG).cloned().collect();
        for key in &pages {
            self.remove(key);
        }
    }

    fn put(&mut self, key: &Key, bytes: Arc<[u8]>) {
        self.remove(key);
        self.noted += 1;
        let is_over = !self.is_under_way(key, &bytes);
        self.rows.insert(key.clone(), Line { bytes, noted: self.noted, is_under_way: true });
        if is_over {
            self.is_over(key);
            if let Some(challenge) = challenge_of(key) {
                self.is_over(&challenge);
            }
        }
    }

    /// From now on it may be forgotten.
    fn is_over(&mut self, key: &Key) {
        if let Some(line) = self.rows.get_mut(key).filter(|line| line.is_under_way) {
            line.is_under_way = false;
            self.size += size_of(key, line);
            self.over.push_back((line.noted, key.clone()));
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(line) = self.rows.remove(key).filter(|line| !line.is_under_way) {
            self.size = self.size.saturating_sub(size_of(key, &line));
        }
    }

    fn shrink(&mut self) {
        while self.size > MOST_BYTES {
            let Some((noted, key)) = self.over.pop_front() else { return };
            if self.rows.get(&key).is_some_and(|line| line.noted == noted) {
                self.remove(&key);
            }
        }
        if self.over.len() > 2 * self.rows.len() + CROWDED {
            let rows = &self.rows;
            self.over.retain(|(noted, key)| rows.get(key).is_some_and(|row| row.noted == *noted));
        }
    }

    /// Whether the row tells of something that is not over.
    fn is_under_way(&self, key: &Key, bytes: &[u8]) -> bool {
        match key[0] {
            // As long as its solve, which is noted before it; it may be large, and is not looked into.
            Challenges::TAG => {
                let solve: Key = [&[Solves::TAG], &key[1..]].concat().into();
                self.rows.get(&solve).is_some_and(|line| line.is_under_way)
            }
            // Most lines are pages: they are not looked into either.
            Pages::TAG | Totals::TAG | DeadLetters::TAG => false,
            _ => relic("journal", key, bytes).is_some_and(|relic| relic.is_under_way()),
        }
    }
}

fn size_of(key: &Key, line: &Line) -> usize {
    LINE + key.len() + line.bytes.len()
}

/// Where the challenge of a solve is.
fn challenge_of(solve: &Key) -> Option<Key> {
    (solve[0] == Solves::TAG).then(|| [&[Challenges::TAG], &solve[1..]].concat().into())
}

fn is_noted(key: &Key) -> bool {
    place(key).is_some()
}

/// In what order rows are brought back. `None`: they are not noted.
fn place(key: &Key) -> Option<u8> {
    Some(match key[0] {
        Holders::TAG => 0,
        Challenges::TAG => 1,
        Solves::TAG => 2,
        Claims::TAG => 3,
        DeadLetters::TAG => 4,
        Pools::TAG => 5,
        Pages::TAG => 6,
        Totals::TAG => 7,
        Spending::TAG => 8,
        Authorised::TAG => 9,
        _ => return None,
    })
}

fn relic(backend: &'static str, key: &Key, bytes: &[u8]) -> Option<Relic> {
    fn row<T: Table>(backend: &'static str, key: &Key, bytes: &[u8]) -> Option<(T::Key, T::Value)> {
        Some((read_key::<T>(backend, key).ok()?, read_row::<T>(backend, key, bytes).ok()?))
    }
    let (a, b, c) = (backend, key, bytes);
    Some(match key[0] {
        Holders::TAG => row::<Holders>(a, b, c).map(|(id, until)| Relic::Holder(id, until))?,
        Challenges::TAG => {
            row::<Challenges>(a, b, c).map(|(id, what)| Relic::Challenge(id, what))?
        }
        Solves::TAG => Relic::Solve(Box::new(row::<Solves>(a, b, c)?.1)),
        Claims::TAG => Relic::Claim(Box::new(row::<Claims>(a, b, c)?.1)),
        DeadLetters::TAG => Relic::Letter(Box::new(row::<DeadLetters>(a, b, c)?.1)),
        Pools::TAG => Relic::Pool(Box::new(row::<Pools>(a, b, c)?.1)),
        Pages::TAG => row::<Pages>(a, b, c).map(|(seq, page)| Relic::Page(seq, page))?,
        Totals::TAG => {
            row::<Totals>(a, b, c).map(|(key, total)| Relic::Total(key, Box::new(total)))?
        }
        Spending::TAG => row::<Spending>(a, b, c).map(|(key, spent)| Relic::Spent(key, spent))?,
        Authorised::TAG => row::<Authorised>(a, b, c).map(|(day, n)| Relic::Authorised(day, n))?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        codec::{key_bytes, write_row},
        tx::{RowKey, RowValue},
    };

    fn row(key: &[u8], value: &dyn RowValue) -> Write {
        let mut bytes = Vec::new();
        let key = RowKey { bytes: key, table: "x", is_plain: false };
        write_row("x", key, value, &mut bytes).unwrap();
        Write::Put(bytes.into())
    }

    fn page(seq: u64, size: usize) -> (Key, Write) {
        let key: Key = key_bytes::<Pages>(&seq).into();
        (key, Write::Put(vec![0; size].into()))
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut journal = Journal::default();
        for seq in 0..100 {
            journal.note(&BTreeMap::from([page(seq, 1 << 20)]));
        }
        assert!(journal.size <= MOST_BYTES + (1 << 21));
        assert!(!journal.rows.contains_key(&page(0, 0).0));
        assert!(journal.rows.contains_key(&page(99, 0).0));
    }

    #[test]
    fn what_is_under_way_is_not_forgotten() {
        let mut journal = Journal::default();
        let key = key_bytes::<Holders>(&domain::id::HolderId::from_number(1));
        let until = domain::time::Timestamp::from_millis(5);
        let held = row(&key, &until);
        journal.note(&BTreeMap::from([(key.into(), held)]));
        for seq in 0..100 {
            journal.note(&BTreeMap::from([page(seq, 1 << 20)]));
        }
        assert!(matches!(journal.relics("x").as_slice(), [Relic::Holder(_, at)] if *at == until));
    }

    #[test]
    fn a_row_written_over_and_over_takes_the_room_of_one() {
        let mut journal = Journal::default();
        let day = domain::time::Day::from_number(1);
        for count in 0..100_000_u32 {
            let key = key_bytes::<Authorised>(&day);
            let authorised = row(&key, &count);
            journal.note(&BTreeMap::from([(key.into(), authorised), page(1, 10)]));
        }
        assert!(journal.over.len() < 2000, "{}", journal.over.len());
        assert_eq!(journal.size, LINE + 9 + 10);
        assert!(matches!(journal.relics("x").as_slice(), [Relic::Authorised(_, 99_999)]));
    }

    #[test]
    fn what_is_taken_out_is_not_brought_back() {
        let mut journal = Journal::default();
        let (key, write) = page(1, 10);
        journal.note(&BTreeMap::from([(key.clone(), write)]));
        journal.note(&BTreeMap::from([(key, Write::Gone)]));
        assert_eq!((journal.rows.len(), journal.size), (0, 0));
    }
}
