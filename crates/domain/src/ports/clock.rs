//! Where time comes from. A port, so that tests and the simulation run in virtual time.

use std::fmt;

use async_trait::async_trait;

use crate::time::Timestamp;

/// The only source of time. `now` never goes backwards within a process.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// Returns at `at` or later.
    async fn sleep_until(&self, at: Timestamp);
}
