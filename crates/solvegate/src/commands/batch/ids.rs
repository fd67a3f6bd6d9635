//! The ids of the lines so far. Two lines with one id would share one payment and one single-use token, and after an
//! interruption only one of them would have its answer. Used by `batch`; `answers` looks up ids with the same hash.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

/// The line that each id was first on, by the hash of the id, so that a long batch takes some 30 bytes a line.
#[derive(Default)]
pub(super) struct InputIds(HashMap<u128, u64>);

// === impl InputIds ===

impl InputIds {
    /// The earlier line with this id.
    pub(super) fn repeats(&mut self, id: &str, number: u64) -> Option<u64> {
        match self.0.entry(hash(id)) {
            Entry::Occupied(first) => Some(*first.get()),
            Entry::Vacant(free) => {
                free.insert(number);
                None
            }
        }
    }
}

pub(super) fn hash(id: &str) -> u128 {
    let half = |salt: u8| BuildHasherDefault::<DefaultHasher>::new().hash_one((salt, id));
    u128::from(half(0)) << 64 | u128::from(half(1))
}
