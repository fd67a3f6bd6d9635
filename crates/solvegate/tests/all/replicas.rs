//! Three gateways on one Redis, PostgreSQL or DynamoDB, all of them real processes: paid once whichever is asked, whichever dies, and
//! whatever becomes of the server. The judge is the simulator's own ledger, kept by another process that never dies.

#![expect(
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "figures are shown with --nocapture; a judge looks for what it knows"
)]

mod fleet;
mod judge;
mod kills;
mod load;
mod losses;
mod sharing;

use std::time::Instant;

/// The time of a test outside the processes under test.
#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
fn now() -> Instant {
    Instant::now()
}
