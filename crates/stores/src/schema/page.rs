//! A page of the ledger: the entries of one decision, and their hashes. Releases without hashes wrote the entries alone; the
//! hashes stand after them, so that such pages are still read.

use std::fmt;

use domain::{
    chain::{ChainedEntry, EntryHash, Link},
    ledger::Entry,
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, SeqAccess, Visitor},
    ser::SerializeTuple as _,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerPage {
    pub(crate) entries: Vec<Entry>,
    /// `None` on a page that was written without hashes.
    pub(crate) hashes: Option<PageHashes>,
}

/// The part of the chain that a page holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageHashes {
    /// The hash of the entry before the page.
    prev: EntryHash,
    /// One for each entry.
    own: Vec<EntryHash>,
}

// === impl LedgerPage ===

impl LedgerPage {
    /// The page of entries that follow the hash.
    pub(crate) fn chained(prev: EntryHash, entries: Vec<Entry>) -> Self {
        let mut last = prev;
        let mut own = Vec::with_capacity(entries.len());
        for entry in &entries {
            last = EntryHash::of(last, entry);
            own.push(last);
        }
        Self { entries, hashes: Some(PageHashes { prev, own }) }
    }

    /// What the next page follows.
    pub(crate) fn last_hash(&self) -> EntryHash {
        let hashes = self.hashes.as_ref();
        hashes.and_then(|hashes| hashes.own.last()).copied().unwrap_or(EntryHash::START)
    }

    /// The entries with their places in the chain.
    pub(crate) fn into_chained(self) -> impl Iterator<Item = ChainedEntry> {
        let Self { entries, hashes } = self;
        let (prev, own) =
            hashes.map_or((None, Vec::new()), |hashes| (Some(hashes.prev), hashes.own));
        let before: Vec<_> = prev.into_iter().chain(own.iter().copied()).collect();
        entries.into_iter().enumerate().map(move |(at, entry)| {
            let link = before.get(at).zip(own.get(at));
            ChainedEntry { entry, link: link.map(|(prev, hash)| Link { prev: *prev, hash: *hash }) }
        })
    }
}

impl Serialize for LedgerPage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(hashes) = &self.hashes else { return self.entries.serialize(serializer) };
        let mut page = serializer.serialize_tuple(2)?;
        page.serialize_element(&self.entries)?;
        page.serialize_element(hashes)?;
        page.end()
    }
}

impl<'de> Deserialize<'de> for LedgerPage {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct PageVisitor;

        impl<'de> Visitor<'de> for PageVisitor {
            type Value = LedgerPage;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a page of the ledger")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut page: A) -> Result<LedgerPage, A::Error> {
                let entries =
                    page.next_element()?.ok_or_else(|| A::Error::missing_field("entries"))?;
                // Nothing follows on a page without hashes. `audit verify` finds a page whose hashes were cut off.
                let hashes = page.next_element().ok().flatten();
                Ok(LedgerPage { entries, hashes })
            }
        }

        input.deserialize_tuple(2, PageVisitor)
    }
}

#[cfg(test)]
mod tests {
    use domain::{
        id::{Project, WorkerName},
        ledger::Event,
        time::Timestamp,
    };

    use super::*;

    fn entries() -> Vec<Entry> {
        let entry = |seq| Entry {
            seq,
            at: Timestamp::from_millis(seq),
            claim: None,
            solve: None,
            worker: WorkerName::new("ann").unwrap(),
            project: Project::new("shop").unwrap(),
            kind: None,
            event: Event::Replayed,
        };
        vec![entry(1), entry(2)]
    }

    #[test]
    fn a_page_without_hashes_is_read_and_written_as_before() {
        let bytes = postcard::to_allocvec(&entries()).unwrap();
        let page: LedgerPage = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(page, LedgerPage { entries: entries(), hashes: None });
        assert_eq!(postcard::to_allocvec(&page).unwrap(), bytes);
        assert_eq!(page.last_hash(), EntryHash::START);
        assert!(page.into_chained().all(|chained| chained.link.is_none()));
    }

    #[test]
    fn a_page_keeps_its_hashes() {
        let page = LedgerPage::chained(EntryHash::START, entries());
        let bytes = postcard::to_allocvec(&page).unwrap();
        assert_eq!(postcard::from_bytes::<LedgerPage>(&bytes).unwrap(), page);
        // Releases before it read the entries and leave the rest.
        assert_eq!(postcard::from_bytes::<Vec<Entry>>(&bytes).unwrap(), entries());
        let last = page.last_hash();
        let links: Vec<Link> = page.into_chained().map(|chained| chained.link.unwrap()).collect();
        assert_eq!(links[0].prev, EntryHash::START);
        assert_eq!((links[1].prev, links[1].hash), (links[0].hash, last));
    }
}
