//! Which stretches of the tables this process knows completely. Everything that changes is in the log, so what is known
//! stays known as long as the log is followed.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeInclusive},
};

use crate::remote::Key;

use super::layout::table_end;

/// Stretches by where they begin, each with the key it ends before. They do not touch.
#[derive(Debug, Default)]
pub(super) struct Known {
    stretches: BTreeMap<Key, Key>,
}

impl Known {
    /// From now on everything from `from` on that is below `to` is known.
    pub(super) fn add(&mut self, mut from: Key, mut to: Key) {
        if let Some((start, end)) = self.at(&from)
            && *end >= from
        {
            (from, to) = (start.clone(), to.max(end.clone()));
        }
        while let Some((start, end)) = self.after(&from).filter(|(start, _)| **start <= to) {
            let start = start.clone();
            to = to.max(end.clone());
            self.stretches.remove(&start);
        }
        self.stretches.insert(from, to);
    }

    /// Whether all of a range is known; otherwise the first key that is not.
    pub(super) fn gap(&self, range: &RangeInclusive<Key>) -> Option<Key> {
        let least = range.start();
        let Some((_, end)) = self.at(least).filter(|(_, end)| *end > least) else {
            return Some(least.clone());
        };
        // A range may end with the table, where no key is.
        let is_through = end > range.end() || *end == table_end(least[0]);
        (!is_through).then(|| end.clone())
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.at(key).is_some_and(|(_, end)| end > key)
    }

    /// Forgets the stretch around a key.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some((start, _)) = self.at(key).filter(|(_, end)| *end > key) {
            let start = start.clone();
            self.stretches.remove(&start);
        }
    }

    pub(super) fn clear(&mut self) {
        self.stretches.clear();
    }

    /// The last stretch that does not begin after the key.
    fn at(&self, key: &Key) -> Option<(&Key, &Key)> {
        self.stretches.range::<Key, _>((Bound::Unbounded, Bound::Included(key))).next_back()
    }

    fn after(&self, key: &Key) -> Option<(&Key, &Key)> {
        self.stretches.range::<Key, _>((Bound::Excluded(key), Bound::Unbounded)).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> Key {
        bytes.into()
    }

    #[test]
    fn stretches_that_meet_become_one() {
        let mut known = Known::default();
        known.add(key(&[1, 4]), key(&[1, 6]));
        known.add(key(&[1]), key(&[1, 2]));
        assert!(known.has(&key(&[1, 1])) && !known.has(&key(&[1, 2])) && known.has(&key(&[1, 5])));
        assert_eq!(known.gap(&(key(&[1])..=key(&[1, 5]))), Some(key(&[1, 2])));
        known.add(key(&[1, 2]), key(&[1, 4]));
        assert_eq!(known.gap(&(key(&[1])..=key(&[1, 5]))), None);
        assert_eq!(known.gap(&(key(&[1])..=key(&[1, 6]))), Some(key(&[1, 6])));
        known.add(key(&[1, 5]), key(&[2]));
        assert_eq!(known.gap(&(key(&[1])..=key(&[2]))), None, "the end of a table");
        assert_eq!(known.stretches.len(), 1);
        known.forget(&key(&[1, 9]));
        assert!(!known.has(&key(&[1])));
    }

    proptest::proptest! {
        #[test]
        fn what_was_added_is_known_and_nothing_else(
            added in proptest::collection::vec((0_u8..60, 1_u8..9), 1..20),
        ) {
            let mut known = Known::default();
            let mut model = [false; 80];
            for (from, length) in added {
                known.add(key(&[1, from]), key(&[1, from + length]));
                model[usize::from(from)..usize::from(from + length)].fill(true);
            }
            for at in 0..80_u8 {
                assert_eq!(known.has(&key(&[1, at])), model[usize::from(at)], "{at}");
            }
        }
    }
}
