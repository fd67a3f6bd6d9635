//! The lanes of the daily sums and of the books of budgets. On a server, each gateway adds to the row of its own lane, so that
//! gateways that count for the same worker do not conflict there. Whoever needs a sum adds its lanes.
//!
//! Lane 0 has the name of the sum itself. Stores of a single process write only this one, and so did earlier releases.

use std::ops::RangeInclusive;

use crate::{
    schema::keys::Text,
    schema::tables::{Spending, Table as _, Totals},
};

/// A gateway on a server has one of the lanes from 1 to this one.
pub(crate) const LAST_LANE: u8 = 15;

/// The name of a row that is a lane of a sum. No part of the name of a sum has a slash.
pub(crate) fn name_in(lane: u8, sum: &str) -> Text {
    if lane == 0 { Text::new(sum) } else { Text::new(&format!("{sum}/{lane}")) }
}

/// The names of all lanes of a sum but lane 0.
pub(crate) fn above_zero(sum: &str) -> RangeInclusive<Text> {
    let prefix = format!("{sum}/");
    Text::new(&prefix)..=Text::after(&prefix)
}

/// The last part of a sum's name, without the lane behind it.
pub(crate) fn without_lane(last: &str) -> &str {
    match last.split_once('/') {
        Some((name, lane)) if lane.parse::<u8>().is_ok() => name,
        Some(_) | None => last,
    }
}

/// Whether a stored key is that of a sum in this lane. The book of a worker whose name is a number may look like one.
pub(crate) fn is_of(lane: u8, key: &[u8]) -> bool {
    let is_sum = key.first().is_some_and(|tag| [Totals::TAG, Spending::TAG].contains(tag));
    is_sum && key.ends_with(format!("/{lane}\0").as_bytes())
}

#[cfg(test)]
mod tests;
