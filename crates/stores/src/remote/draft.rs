//! A decision in the making: what it assumed, and what it wants written.

use std::{cell::RefCell, collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use domain::ports::StoreError;

use crate::{
    codec::{corrupt, write_row},
    tx::{KeyRange, Order, ReadRow, ReadTx, RowKey, RowValue, Stored, WriteTx},
};

use super::{Correction, Image, Key, MOST_ROWS, Row, Stamp};

/// The transaction of a decision: the image, with the decision's own writes before it.
pub(crate) struct Draft<'a> {
    kind: BackendKind,
    image: &'a Image,
    writes: BTreeMap<Key, Write>,
    /// What the writes were before, since the last mark.
    undo: Vec<(Key, Option<Write>)>,
    assumed: RefCell<Assumed>,
    doubtful: bool,
    lasting: bool,
    written: usize,
    /// Where values are encoded.
    scratch: Vec<u8>,
    /// The value of rows that have none.
    nothing: Arc<[u8]>,
}

/// What a draft has to know of its backend. Data rather than a type parameter: every rule would be compiled for each
/// backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackendKind {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// Bytes in one call, but for its last decision: challenges can be large.
    pub(crate) most_bytes: usize,
    /// Why no row there can have this key. The decision that writes one is refused alone; the server would refuse the batch.
    pub(crate) refuses: fn(&[u8]) -> Option<&'static str>,
}

/// What is to become of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Put(Arc<[u8]>),
    Gone,
}

/// What a decision read, as it was remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assumed {
    /// Rows by their version; `None`: there is none.
    pub(crate) rows: BTreeMap<Key, Option<Stamp>>,
    /// Ranges and the keys in them.
    pub(crate) spans: BTreeMap<Span, Found>,
}

/// A range that was scanned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// Its least key.
    pub(crate) least: Key,
    /// Its largest.
    pub(crate) most: Key,
    /// Whether it was scanned from the largest down.
    pub(crate) falling: bool,
}

/// How much of a range was looked at, and what was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The last key looked at; `None`: all of the range.
    pub(crate) until: Option<Key>,
    /// The keys, in the order of the scan.
    pub(crate) keys: Vec<Key>,
    /// How many the rule would have taken.
    pub(crate) wanted: usize,
}

// === impl Draft ===

impl<'a> Draft<'a> {
    /// An empty draft. While the store is in doubt, nothing is risked on it.
    pub(crate) fn new(kind: BackendKind, image: &'a Image, doubtful: bool) -> Self {
        Self {
            kind,
            image,
            writes: BTreeMap::new(),
            undo: Vec::new(),
            assumed: RefCell::default(),
            doubtful,
            lasting: false,
            written: 0,
            scratch: Vec::new(),
            nothing: Arc::from([]),
        }
    }

    /// What was written so far will not be taken back.
    pub(crate) fn mark(&mut self) {
        self.undo.clear();
    }

    /// Takes back what was written since the mark. What was read stays: the failure depends on it.
    pub(crate) fn take_back(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(write) => self.writes.insert(key, write),
                None => self.writes.remove(&key),
            };
        }
    }

    /// Whether something was written that must outlive the server, since this was last asked.
    pub(crate) fn take_lasting(&mut self) -> bool {
        std::mem::take(&mut self.lasting)
    }

    /// What it assumed and what it wants written.
    pub(crate) fn finish(self) -> (Assumed, BTreeMap<Key, Write>) {
        (self.assumed.into_inner(), self.writes)
    }

    /// Bytes written, also those written over.
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    fn set(&mut self, key: Key, write: Write) {
        if let Write::Put(bytes) = &write {
            self.written += bytes.len();
        }
        let before = self.writes.insert(key.clone(), write);
        self.undo.push((key, before));
    }

    /// The row as this draft sees it.
    fn seen(&self, key: &Key) -> Option<Arc<[u8]>> {
        match self.writes.get(key) {
            Some(Write::Put(bytes)) => Some(bytes.clone()),
            Some(Write::Gone) => None,
            None => {
                let row = self.image.get(key);
                let stamp = row.map(|row| row.stamp);
                self.assumed.borrow_mut().rows.insert(key.clone(), stamp);
                row.map(|row| row.bytes.clone())
            }
        }
    }

    /// Rows of a range as this draft sees them: the remembered ones that are not gone, and the written ones.
    fn seen_range(&self, span: &Span, limit: usize) -> Vec<(Key, Arc<[u8]>)> {
        let order = span.order();
        let range = span.least.clone()..=span.most.clone();
        let mut remembered = self.image.range(&range, order).peekable();
        let mut written = in_order(self.writes.range(range.clone()), order).peekable();
        let mut found = Vec::new();
        let mut looked_at = Vec::new();
        while found.len() < limit {
            let ours = written.peek().map(|(key, _)| *key);
            let theirs = remembered.peek().map(|(key, _)| *key);
            let Some(next) = first_of(order, ours, theirs).cloned() else { break };
            let row = remembered.next_if(|(key, _)| **key == next);
            looked_at.extend(row);
            let own = written.next_if(|(key, _)| **key == next);
            match (own, row) {
                (Some((_, Write::Put(bytes))), _) => found.push((next, bytes.clone())),
                (Some((_, Write::Gone)), _) | (None, None) => {}
                (None, Some((_, row))) => found.push((next, row.bytes.clone())),
            }
        }
        let until =
            if found.len() < limit { None } else { found.last().map(|(key, _)| key.clone()) };
        self.assume(span, until, &looked_at, limit);
        found
    }

    /// A crowd scans the same range again and again, each time a little farther: what was looked at before is the
    /// beginning of what is looked at now.
    fn assume(&self, span: &Span, until: Option<Key>, looked_at: &[(&Key, &Row)], wanted: usize) {
        let mut assumed = self.assumed.borrow_mut();
        let Assumed { rows, spans } = &mut *assumed;
        if !spans.contains_key(span) {
            spans.insert(span.clone(), Found { until: until.clone(), ..Found::default() });
        }
        let Some(found) = spans.get_mut(span) else { return };
        for (key, row) in looked_at.iter().skip(found.keys.len()) {
            // A row with a value is compared by its version; whether one without is there, the range itself says.
            if !row.bytes.is_empty() {
                rows.insert((*key).clone(), Some(row.stamp));
            }
            found.keys.push((*key).clone());
        }
        found.wanted = found.wanted.max(wanted);
        if span.reaches(until.as_ref(), found.until.as_ref()) {
            found.until = until;
        }
    }
}

fn in_order<'a, I>(rows: I, order: Order) -> Box<dyn Iterator<Item = I::Item> + 'a>
where
    I: DoubleEndedIterator + 'a,
{
    match order {
        Order::Rising => Box::new(rows),
        Order::Falling => Box::new(rows.rev()),
    }
}

fn first_of<'k>(order: Order, a: Option<&'k Key>, b: Option<&'k Key>) -> Option<&'k Key> {
    match (a, b) {
        (Some(a), Some(b)) => Some(match order {
            Order::Rising => a.min(b),
            Order::Falling => a.max(b),
        }),
        (one, None) | (None, one) => one,
    }
}

impl ReadTx for Draft<'_> {
    fn backend(&self) -> &'static str {
        self.kind.name
    }

    fn find(&self, key: &[u8], read: ReadRow<'_>) -> Result<(), StoreError> {
        match self.seen(&key.into()) {
            Some(bytes) => read(key, stored(&bytes)),
            None => Ok(()),
        }
    }

    fn last_key(&self, tag: u8) -> Result<Option<Vec<u8>>, StoreError> {
        let span = Span {
            least: [tag].as_slice().into(),
            most: [tag + 1].as_slice().into(),
            falling: true,
        };
        Ok(self.seen_range(&span, 1).first().map(|(key, _)| key.to_vec()))
    }

    fn find_range(&self, range: &KeyRange, read: ReadRow<'_>) -> Result<(), StoreError> {
        let span = Span {
            least: range.least.as_slice().into(),
            most: range.most.as_slice().into(),
            falling: range.order == Order::Falling,
        };
        let rows = self.seen_range(&span, range.limit);
        rows.iter().try_for_each(|(key, bytes)| read(key, stored(bytes)))
    }
}

impl WriteTx for Draft<'_> {
    fn write(&mut self, key: RowKey<'_>, value: Box<dyn RowValue>) -> Result<(), StoreError> {
        if let Some(why) = (self.kind.refuses)(key.bytes) {
            return Err(corrupt(self.kind.name, key.table, why));
        }
        let bytes: Arc<[u8]> = if key.is_plain {
            self.nothing.clone()
        } else {
            write_row(self.kind.name, key, &*value, &mut self.scratch)?;
            self.scratch.as_slice().into()
        };
        self.set(key.bytes.into(), Write::Put(bytes));
        Ok(())
    }

    fn remove(&mut self, key: RowKey<'_>, read: ReadRow<'_>) -> Result<(), StoreError> {
        let name: Key = key.bytes.into();
        let seen = if key.is_plain {
            // Nobody asks whether a row without a value was there; so it need not be compared.
            self.image.get(&name).map(|row| row.bytes.clone())
        } else {
            self.seen(&name)
        };
        if let Some(bytes) = &seen {
            read(key.bytes, stored(bytes))?;
        }
        if seen.is_some() || key.is_plain {
            self.set(name, Write::Gone);
        }
        Ok(())
    }

    fn require_durable(&mut self) {
        self.lasting = true;
    }

    fn is_doubtful(&self) -> bool {
        self.doubtful
    }
}

/// An encoded value is never empty: its head has the checksum.
fn stored(bytes: &[u8]) -> Stored<'_> {
    if bytes.is_empty() { Stored::Plain } else { Stored::Encoded(bytes) }
}

// === impl Assumed ===

impl Assumed {
    /// What was not among `others`.
    #[must_use]
    pub(crate) fn without(mut self, others: &Self) -> Self {
        self.rows.retain(|key, _| !others.rows.contains_key(key));
        self.spans.retain(|span, found| {
            others.spans.get(span).is_none_or(|other| found.wanted > other.wanted)
        });
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.spans.is_empty()
    }

    /// Adds what others had compared or corrected.
    pub(crate) fn extend(&mut self, others: Self) {
        self.rows.extend(others.rows);
        self.spans.extend(others.spans);
    }

    /// Adds what came with a correction.
    pub(crate) fn learned(&mut self, correction: &Correction) {
        let Correction::Span { span, rows, more } = correction else { return };
        self.rows.extend(rows.iter().map(|(key, row)| (key.clone(), Some(row.stamp))));
        if let Some(found) = self.spans.get_mut(span).filter(|_| *more) {
            // No more was told than this.
            found.wanted = rows.len();
        }
    }
}

// === impl Span ===

impl Span {
    pub(crate) fn order(&self) -> Order {
        if self.falling { Order::Falling } else { Order::Rising }
    }

    /// Whether a scan up to `until` looked at least as far as one up to `other`; `None`: it went through.
    fn reaches(&self, until: Option<&Key>, other: Option<&Key>) -> bool {
        match (until, other) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(until), Some(other)) if self.falling => until <= other,
            (Some(until), Some(other)) => until >= other,
        }
    }

    /// The part of the range an answer tells of, when it ended at `last` or went through.
    pub(crate) fn told(&self, last: Option<&Key>) -> RangeInclusive<Key> {
        match (last, self.falling) {
            (None, _) => self.least.clone()..=self.most.clone(),
            (Some(last), false) => self.least.clone()..=last.clone(),
            (Some(last), true) => last.clone()..=self.most.clone(),
        }
    }
}

impl Found {
    /// How many rows are told when it was wrong. A crowd that takes what it scans comes back for more each time: it is told
    /// twice as much as it knew.
    pub(crate) fn to_tell(&self) -> usize {
        let known = self.keys.len();
        known + self.wanted.saturating_sub(known).max(known).clamp(16, MOST_ROWS)
    }
}
