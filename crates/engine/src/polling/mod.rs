//! When a task is polled.
//!
//! # Layout
//! - `schedule`: a schedule with its memory, of one of two sorts: `fixed` or `learned`
//! - `batch`: one call for many tasks; `quota`: the limit on all polls of the account; `pingback`: the provider calls back

pub(crate) mod batch;
mod fixed;
mod learned;
pub(crate) mod pingback;
pub(crate) mod quota;
mod schedule;
#[cfg(test)]
mod simulation;

pub use fixed::FixedPolling;
pub use learned::{LearnedConfig, memory::SolveTimeMemory};
pub use schedule::{Family, Observation, PollQuery, Polling, Timing};

use self::{batch::BatchSupport, pingback::Pingbacks, quota::PollQuota};

/// What is shared about polling while the driver runs.
#[derive(Debug, Default)]
pub(crate) struct TaskPoller {
    pub(crate) quota: PollQuota,
    pub(crate) batches: BatchSupport,
    pub(crate) pingbacks: Pingbacks,
}

/// A task for stock weighs a tenth of one that somebody waits for.
const STOCK_WEIGHT: f64 = 0.1;

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn as_float(count: usize) -> f64 {
    count as f64
}
