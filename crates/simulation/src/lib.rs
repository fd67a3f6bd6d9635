//! Deterministic simulation: several gateways with the real engine, workers, a simulated provider and random failures,
//! in virtual time, all decided by one seed. A test-only crate; nothing that ships depends on it.
//!
//! # Layout
//! - [`world`]: builds everything from a seed ([`world::Plan`]) and runs it to the end
//! - [`nemesis`]: crashes, pauses, network cuts and clock jumps during a run
//! - [`ports`]: the store and the provider as one gateway reaches them, and where the planted bugs ([`bug::Bug`]) act
//! - [`monitor`]: checks the ledger after every store call of a gateway, and ends the run at the first violation
//! - [`books`]: checks the books of the budgets against the ledger and the limits, at the same moments
//! - [`keys`]: checks when keys open failed work again
//! - [`judge`]: compares our ledger, the provider's ledger and the tokens that workers received, after the run
//! - [`seeds`]: runs a seed and says how to repeat it
//! - [`stage`]: one store, one provider and any number of gateways, for tests of a single scenario
//!
//! `main.rs` is the program `sim`, which prints the story of one seed; the tests are in `tests/simulation/`.

#![expect(clippy::unwrap_used, reason = "a simulation fails where it panics")]
#![expect(clippy::wildcard_enum_match_arm, reason = "each reader names the cases it is about")]

pub mod books;
pub mod bug;
mod clocks;
pub mod judge;
pub mod keys;
pub mod monitor;
pub mod nemesis;
pub mod ports;
pub mod seeds;
pub mod stage;
mod stops;
pub mod totals;
pub mod world;
