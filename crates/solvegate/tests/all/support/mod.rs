//! Shared by the tests: processes on free loopback ports, and ledger queries.

mod gateway;
mod ledgers;
mod ports;
mod process;
mod provider;
mod sim;
mod terminal;

pub(crate) use gateway::{
    ADMIN, CERTIFICATE, Gateway, PROVIDER, Settings, WORKER, WORKER_TWO, write_private,
};
pub(crate) use ledgers::{all_claims, allotments};
pub(crate) use ports::{ClosedPort, Forward};
pub(crate) use process::{Process, command, program, read_key, run};
pub(crate) use provider::{LoggingProvider, Sent};
pub(crate) use sim::Sim;
pub(crate) use store_tests::all_entries;
pub(crate) use terminal::OnTerminal;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use domain::time::Timestamp;

/// The time limit of all waits. It only ends a test that would wait for ever, so it is long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// Polls until there is a result, and fails the test after [`PATIENCE`].
#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
pub(crate) async fn eventually<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// The time of day, to compare with times in a ledger.
#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
pub(crate) fn wall_clock() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(u64::try_from(now.as_millis()).unwrap())
}

/// The duration of kill tests: `SOLVEGATE_KILLS_SECONDS`, or 15 (docs/testing.md).
#[expect(clippy::disallowed_methods, reason = "the environment sets the length of the test")]
pub(crate) fn kills_last() -> Duration {
    let seconds = std::env::var("SOLVEGATE_KILLS_SECONDS").ok();
    Duration::from_secs(seconds.map_or(15, |seconds| seconds.parse().unwrap()))
}
