//! The key ranges that this process has cached completely. Every change is in the log, so a cached range stays complete as long as
//! this process follows the log.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeInclusive},
};

use crate::optimistic::RawKey;

use super::layout::table_end;

/// Ranges by their first key, each with the key it ends before. They do not overlap or touch.
#[derive(Debug, Default)]
pub(super) struct CachedRanges {
    ranges: BTreeMap<RawKey, RawKey>,
}

impl CachedRanges {
    /// Adds the range from `from` up to, but without, `to`.
    pub(super) fn add(&mut self, mut from: RawKey, mut to: RawKey) {
        if let Some((start, end)) = self.at(&from)
            && *end >= from
        {
            (from, to) = (start.clone(), to.max(end.clone()));
        }
        while let Some((start, end)) = self.after(&from).filter(|(start, _)| **start <= to) {
            let start = start.clone();
            to = to.max(end.clone());
            self.ranges.remove(&start);
        }
        self.ranges.insert(from, to);
    }

    /// The first key of a range that is not cached; `None`: all of it is.
    pub(super) fn gap(&self, range: &RangeInclusive<RawKey>) -> Option<RawKey> {
        let least = range.start();
        let Some((_, end)) = self.at(least).filter(|(_, end)| *end > least) else {
            return Some(least.clone());
        };
        // A range may end with its table.
        let is_through = end > range.end() || *end == table_end(least[0]);
        (!is_through).then(|| end.clone())
    }

    pub(super) fn has(&self, key: &RawKey) -> bool {
        self.at(key).is_some_and(|(_, end)| end > key)
    }

    /// Removes the range around a key.
    pub(super) fn forget(&mut self, key: &RawKey) {
        if let Some((start, _)) = self.at(key).filter(|(_, end)| *end > key) {
            let start = start.clone();
            self.ranges.remove(&start);
        }
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The last range that begins at the key or before it.
    fn at(&self, key: &RawKey) -> Option<(&RawKey, &RawKey)> {
        self.ranges.range::<RawKey, _>((Bound::Unbounded, Bound::Included(key))).next_back()
    }

    fn after(&self, key: &RawKey) -> Option<(&RawKey, &RawKey)> {
        self.ranges.range::<RawKey, _>((Bound::Excluded(key), Bound::Unbounded)).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> RawKey {
        bytes.into()
    }

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut cached = CachedRanges::default();
        cached.add(key(&[1, 4]), key(&[1, 6]));
        cached.add(key(&[1]), key(&[1, 2]));
        assert!(
            cached.has(&key(&[1, 1])) && !cached.has(&key(&[1, 2])) && cached.has(&key(&[1, 5]))
        );
        assert_eq!(cached.gap(&(key(&[1])..=key(&[1, 5]))), Some(key(&[1, 2])));
        cached.add(key(&[1, 2]), key(&[1, 4]));
        assert_eq!(cached.gap(&(key(&[1])..=key(&[1, 5]))), None);
        assert_eq!(cached.gap(&(key(&[1])..=key(&[1, 6]))), Some(key(&[1, 6])));
        cached.add(key(&[1, 5]), key(&[2]));
        assert_eq!(cached.gap(&(key(&[1])..=key(&[2]))), None, "the end of a table");
        assert_eq!(cached.ranges.len(), 1);
        cached.forget(&key(&[1, 9]));
        assert!(!cached.has(&key(&[1])));
    }

    proptest::proptest! {
        #[test]
        fn exactly_the_added_ranges_are_cached(
            added in proptest::collection::vec((0_u8..60, 1_u8..9), 1..20),
        ) {
            let mut cached = CachedRanges::default();
            let mut model = [false; 80];
            for (from, length) in added {
                cached.add(key(&[1, from]), key(&[1, from + length]));
                model[usize::from(from)..usize::from(from + length)].fill(true);
            }
            for at in 0..80_u8 {
                assert_eq!(cached.has(&key(&[1, at])), model[usize::from(at)], "{at}");
            }
        }
    }
}
