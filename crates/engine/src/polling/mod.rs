//! When a task is polled.
//!
//! # Layout
//! - `schedule`: the interface of a schedule; `fixed` and `learned` implement it
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
pub use learned::{LearnedConfig, LearnedPolling};
pub use schedule::{Family, Observation, PollQuery, Polling, Timing};

use self::{batch::support::BatchSupport, pingback::Pingbacks, quota::PollQuota};

/// What is shared about polling while the driver runs.
#[derive(Debug, Default)]
pub(crate) struct TaskPoller {
    pub(crate) quota: PollQuota,
    pub(crate) batches: BatchSupport,
    pub(crate) pingbacks: Pingbacks,
}
