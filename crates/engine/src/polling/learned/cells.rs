//! Cells of time, each two per cent wider than the last, in which solve times are counted. A time is known to one per cent.

use std::{sync::LazyLock, time::Duration};

use super::super::as_float;

/// Width of a cell, in natural logarithms.
pub(super) const WIDTH: f64 = 0.02;
/// The end of the first cell, in seconds: no task is faster.
const LOWEST: f64 = 0.1;
/// Cells up to the longest time a provider takes (ten minutes), and one for everything later.
pub(super) const CELLS: usize = 437;
/// The last edge with a finite time: the end of the last cell but one.
pub(super) const LAST: usize = CELLS - 1;

/// The cells' lower edges in seconds: cell `i` holds times after edge `i` and up to edge `i + 1`.
pub(super) static EDGES: LazyLock<[f64; CELLS]> = LazyLock::new(|| {
    std::array::from_fn(|edge| match edge {
        0 => 0.0,
        edge => LOWEST * (as_float(edge - 1) * WIDTH).exp(),
    })
});

/// The logarithms of the cells' middles.
pub(super) static LOGS: LazyLock<[f64; CELLS]> =
    LazyLock::new(|| std::array::from_fn(|cell| LOWEST.ln() + (as_float(cell) - 0.5) * WIDTH));

/// The edge nearest to the time.
pub(super) fn nearest(time: Duration) -> usize {
    floor(position(time.as_secs_f64()) + 0.5).min(LAST)
}

/// The edge before the time, and which part of the cell after it has gone by.
pub(super) fn locate(seconds: f64) -> (usize, f64) {
    let edge = floor(position(seconds)).min(LAST);
    if edge == LAST {
        return (LAST, 0.0);
    }
    let (from, to) = (EDGES[edge], EDGES[edge + 1]);
    (edge, ((seconds - from) / (to - from)).clamp(0.0, 1.0))
}

fn position(seconds: f64) -> f64 {
    if seconds <= LOWEST {
        return (seconds / LOWEST).max(0.0);
    }
    (1.0 + (seconds / LOWEST).ln() / WIDTH).min(as_float(LAST))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a position is between 0 and LAST"
)]
fn floor(position: f64) -> usize {
    position as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_reach_ten_minutes_and_every_time_is_found_to_one_per_cent() {
        assert!((600.0..602.0).contains(&EDGES[LAST]), "{}", EDGES[LAST]);
        for tenth in 1..6000_u64 {
            let seconds = Duration::from_millis(tenth * 100);
            let edge = EDGES[nearest(seconds)];
            assert!((edge / seconds.as_secs_f64()).ln().abs() <= WIDTH / 2.0 + 1e-9);
            let (before, part) = locate(seconds.as_secs_f64());
            assert!(EDGES[before] <= seconds.as_secs_f64() + 1e-9 && (0.0..=1.0).contains(&part));
        }
        assert_eq!((nearest(Duration::ZERO), nearest(Duration::MAX)), (0, LAST));
    }
}
