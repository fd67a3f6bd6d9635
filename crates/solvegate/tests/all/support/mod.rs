//! What the tests share: our own processes on free loopback ports, ended by their pid, and a small client.

mod gateway;
mod ports;
mod process;
mod sim;

pub(crate) use gateway::{ADMIN, Gateway, Settings, WORKER, WORKER_TWO};
pub(crate) use ports::{ClosedPort, Forward};
pub(crate) use process::{Process, command, program, run};
pub(crate) use sim::Sim;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use domain::time::Timestamp;

/// How long anything is waited for. Nothing is measured by it: it only ends a test that would wait for ever, so it is long
/// enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// Looks again and again until it is so; fails the test when it never is.
#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Lets some time pass.
#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// The time of day, to be held against times in a ledger.
#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
pub(crate) fn wall_clock() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(u64::try_from(now.as_millis()).unwrap())
}

/// How long processes are killed again and again: `SOLVEGATE_KILLS_SECONDS`, for whoever has more time (docs/testing.md).
#[expect(clippy::disallowed_methods, reason = "a test may be told how long to last")]
pub(crate) fn kills_last() -> Duration {
    let told = std::env::var("SOLVEGATE_KILLS_SECONDS").ok();
    Duration::from_secs(told.map_or(15, |told| told.parse().unwrap()))
}
