//! Three gateways on one Redis, PostgreSQL or DynamoDB, all of them real processes: a claim is paid once, whichever
//! gateway gets it, whichever dies, and whatever happens to the server. The judge is the simulator's ledger, in a
//! process that never dies.

#![expect(
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "figures are shown with --nocapture; a judge looks for what it knows"
)]

mod chaos;
mod charges;
mod clocks;
mod fleet;
mod judge;
mod kills;
mod load;
mod losses;
mod shares;
mod sharing;
mod stops;

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
fn now() -> Instant {
    Instant::now()
}
