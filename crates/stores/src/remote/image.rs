//! What this process remembers of the server's rows. Only hints: every commit has them checked.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeInclusive},
};

use crate::{
    tables::{BySitekey, ByTime, ByWorker, Pages, Table, Told},
    tx::Order,
};

use super::{Key, Row, Span, Stamp, Write};

/// The remembered rows, by key. A row that is not here is assumed not to exist.
#[derive(Debug, Default)]
pub(crate) struct Image {
    rows: BTreeMap<Key, Row>,
    size: usize,
    /// Whether rows that no decision looks at are kept too.
    keeps_all: bool,
}

/// What an assumption should have been.
#[derive(Debug)]
pub(crate) enum Correction {
    /// One row.
    Row(Key, Option<Row>),
    /// The first rows of a range; there are no others between them.
    Span {
        span: Span,
        rows: Vec<(Key, Row)>,
        /// Whether there may be more behind the last of them.
        more: bool,
    },
}

/// Beyond this everything is forgotten: remembering again costs a round trip for each thing that is used.
const MOST_BYTES: usize = 128 << 20;
/// What a row costs besides its bytes.
const ROW: usize = 96;

// === impl Image ===

impl Image {
    #[cfg(feature = "dynamodb")]
    pub(crate) fn keeping_all() -> Self {
        Self { keeps_all: true, ..Self::default() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Row> {
        self.rows.get(key)
    }

    /// Rows of a range in the order asked for.
    pub(crate) fn range<'a>(
        &'a self,
        range: &'a RangeInclusive<Key>,
        order: Order,
    ) -> Box<dyn Iterator<Item = (&'a Key, &'a Row)> + 'a> {
        let bounds = (Bound::Included(range.start()), Bound::Included(range.end()));
        let rows = self.rows.range::<Key, _>(bounds);
        match order {
            Order::Rising => Box::new(rows),
            Order::Falling => Box::new(rows.rev()),
        }
    }

    /// Remembers what was committed.
    pub(crate) fn wrote(&mut self, writes: BTreeMap<Key, Write>, stamp: Stamp) {
        for (key, write) in writes {
            match write {
                Write::Put(bytes) => self.remember(key, Row { stamp, bytes }),
                Write::Gone => self.forget(&key),
            }
        }
    }

    /// Forgets everything when it has become too much, and says so. Not while a decision is corrected: it would never come to
    /// its end.
    pub(crate) fn bound(&mut self) -> bool {
        let is_too_much = self.size > MOST_BYTES;
        if is_too_much {
            self.clear();
        }
        is_too_much
    }

    /// Remembers what the server said.
    pub(crate) fn correct(&mut self, correction: Correction) {
        match correction {
            Correction::Row(key, Some(row)) => self.insert(key, row),
            Correction::Row(key, None) => self.forget(&key),
            Correction::Span { span, rows, more } => {
                let told = span.told(rows.last().filter(|_| more).map(|(key, _)| key));
                let old: Vec<Key> =
                    self.range(&told, Order::Rising).map(|(key, _)| key.clone()).collect();
                for key in old {
                    self.forget(&key);
                }
                for (key, row) in rows {
                    self.insert(key, row);
                }
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self { keeps_all: self.keeps_all, ..Self::default() };
    }

    /// Remembers all rows of a stretch.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn learn(&mut self, stretch: std::ops::Range<Key>, rows: Vec<(Key, Row)>) {
        let old: Vec<Key> = self.rows.range(stretch).map(|(key, _)| key.clone()).collect();
        for key in &old {
            self.forget(key);
        }
        for (key, row) in rows {
            self.insert(key, row);
        }
    }

    /// Remembers what decisions to come may look at.
    fn remember(&mut self, key: Key, row: Row) {
        if self.keeps_all {
            self.insert(key, row);
            return;
        }
        if key.first().is_some_and(|tag| is_history(*tag)) {
            return;
        }
        if key.first() == Some(&Pages::TAG) {
            // The next page is numbered after the last; nobody decides by the others.
            let older: RangeInclusive<Key> = [Pages::TAG].as_slice().into()..=key.clone();
            let older: Vec<Key> =
                self.range(&older, Order::Rising).map(|(key, _)| key.clone()).collect();
            for key in &older {
                self.forget(key);
            }
        }
        self.insert(key, row);
    }

    fn insert(&mut self, key: Key, row: Row) {
        let (name, value) = (key.len(), row.bytes.len());
        match self.rows.insert(key, row) {
            Some(old) => self.size = self.size.saturating_sub(old.bytes.len()) + value,
            None => self.size += ROW + name + value,
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some(row) = self.rows.remove(key) {
            self.size = self.size.saturating_sub(ROW + key.len() + row.bytes.len());
        }
    }
}

/// Indexes that only readings and retention look at: written and not remembered.
fn is_history(tag: u8) -> bool {
    [ByTime::TAG, ByWorker::TAG, BySitekey::TAG, Told::TAG].contains(&tag)
}
