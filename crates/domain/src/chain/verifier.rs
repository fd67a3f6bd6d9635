//! Walks along the chain and finds its first break. It needs nothing but the entries, so an export can be verified without a
//! gateway.

use std::fmt;

use super::{ChainedEntry, EntryHash, LedgerItem};

/// Verifies a ledger, entry by entry, in order.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    report: ChainReport,
    /// The hash of the last entry, if it has one.
    head: Option<EntryHash>,
}

/// How much of a ledger was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainReport {
    /// The number of the first entry.
    pub first: Option<u64>,
    /// The number of the last entry.
    pub last: Option<u64>,
    /// All entries.
    pub entries: u64,
    /// Those at the beginning that have no hash, because an earlier release wrote them.
    pub unhashed: u64,
    /// What the first entry with a hash follows; not [`EntryHash::START`] if the entries before it were deleted at the end of
    /// their retention.
    pub anchor: Option<EntryHash>,
    /// The hash of the last entry. Noted outside, it later shows whether anything up to here was changed.
    pub head: Option<EntryHash>,
}

/// Where a chain breaks first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {flaw}", named(*.first, *.seq))]
pub struct Break {
    /// The number of the first entry that may be affected.
    pub first: u64,
    /// The number of the entry, or of the last one that may be affected.
    pub seq: u64,
    /// What is wrong.
    pub flaw: Flaw,
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Its hash is another one.
    #[error("the entry or its hash was changed")]
    Changed,
    /// It follows an entry with another hash.
    #[error("it does not follow the entry before it: an entry was removed, inserted or changed")]
    Unlinked,
    /// It has no hash.
    #[error("it has no hash, although an earlier entry has one")]
    Unhashed,
    /// The entry in its place has a number that is not above that of the entry before.
    #[error("the entry in its place has the number {0}")]
    Misnumbered(u64),
    /// The store cannot read it.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It is not the entry whose hash was noted outside.
    #[error("its hash is not the noted one")]
    NotAsNoted,
}

fn named(first: u64, seq: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        if first < seq { write!(f, "entries {first} to {seq}") } else { write!(f, "entry {seq}") }
    })
}

// === impl Verifier ===

impl Verifier {
    /// Verifies that the next item follows those before it.
    pub fn check(&mut self, item: &LedgerItem) -> Result<(), Break> {
        match item {
            LedgerItem::Entry(entry) => self.check_entry(entry),
            LedgerItem::Unreadable { seq, why } => {
                let next = self.report.last.map_or(*seq, |last| last.saturating_add(1));
                let flaw = Flaw::Unreadable(why.clone());
                Err(Break { first: next.min(*seq), seq: *seq, flaw })
            }
        }
    }

    fn check_entry(&mut self, ChainedEntry { entry, link }: &ChainedEntry) -> Result<(), Break> {
        let seq = entry.seq;
        // The number may be what was changed, so the place after the last good entry is named too.
        let next = self.report.last.map_or(seq, |last| last.saturating_add(1));
        let broken = |flaw| Err(Break { first: next, seq: seq.max(next), flaw });
        if self.report.last.is_some_and(|last| seq <= last) {
            return broken(Flaw::Misnumbered(seq));
        }
        match (link, self.head) {
            (None, None) => self.report.unhashed += 1,
            (None, Some(_)) => return broken(Flaw::Unhashed),
            (Some(link), head) => {
                // The chain may begin anywhere, but only at its start after entries without a hash.
                let is_first = self.report.last.is_none();
                let expected = head.or((!is_first).then_some(EntryHash::START));
                if EntryHash::of(link.prev, entry) != link.hash {
                    return broken(Flaw::Changed);
                }
                if expected.is_some_and(|expected| expected != link.prev) {
                    return broken(Flaw::Unlinked);
                }
                self.report.anchor.get_or_insert(link.prev);
                self.head = Some(link.hash);
            }
        }
        self.report.first.get_or_insert(seq);
        self.report.last = Some(seq);
        self.report.entries += 1;
        Ok(())
    }

    /// What was verified so far.
    pub fn report(&self) -> ChainReport {
        ChainReport { head: self.head, ..self.report }
    }
}
