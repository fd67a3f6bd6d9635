//! What the tests share: our own processes on free loopback ports, ended by their pid, and a small client.

mod gateway;
mod process;
mod sim;

pub(crate) use gateway::{ADMIN, Gateway, Settings, WORKER, WORKER_TWO};
pub(crate) use process::{Process, command, run};
pub(crate) use sim::Sim;

use std::time::{Duration, Instant};

/// Looks again and again until it is so; fails the test when it is not in time.
#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
pub(crate) async fn eventually<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Lets some time pass.
#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
