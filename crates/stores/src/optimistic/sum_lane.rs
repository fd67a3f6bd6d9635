//! The lane of this gateway, in which it adds to the daily sums and to the books of budgets (`decisions/support/lanes.rs`).

use crate::decisions::support::lanes::{self, LAST_LANE};

use super::{ReadSet, RowCache};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SumLane(u8);

impl SumLane {
    /// Any lane. It is not the gateway's number modulo the lanes: two gateways that meet in one would never part.
    pub(super) fn any() -> Self {
        Self(fastrand::u8(1..=LAST_LANE))
    }

    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// Draws another lane if another gateway adds to this one, that is, if one of its rows has changed since it was read.
    /// After a start, the rows that an earlier process left are not read yet, so finding them changes nothing.
    pub(super) fn leave_if_shared(&mut self, reads: &ReadSet, cache: &RowCache) {
        let is_changed = reads.rows.iter().any(|(key, read)| {
            read.is_some_and(|read| {
                lanes::is_of(self.0, key) && cache.get(key).is_none_or(|row| row.version != read)
            })
        });
        if is_changed {
            self.0 = 1 + (self.0 - 1 + fastrand::u8(1..LAST_LANE)) % LAST_LANE;
        }
    }
}
