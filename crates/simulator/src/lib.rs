//! The simulated provider: one seeded behaviour, over HTTP or in process. It solves nothing: its
//! tokens are made up, and its ledger is the judge of what the gateway paid for.
//!
//! # Layout
//! - [`behaviour`]: what the provider does, pure; [`config`]: what sort it is; [`pace`]: how long it takes and what it costs;
//!   [`answers`]: what it answers; `bans`: whom it shuts out
//! - [`faults`]: what goes wrong on demand; [`ledger`]: what was received, accepted, charged, answered
//! - [`account`]: the three of them together, shared by both fronts
//! - [`server`]: over HTTP, with `exchange` for in.php and res.php `broken` for replies gone wrong
//!   and `pingback` for calling back
//! - [`provider`]: in process, in virtual time; [`clock`]: the wall clock, and virtual time
//!
//! # Trying things by hand
//! A sitekey that starts with `unsolvable-` ends in `ERROR_CAPTCHA_UNSOLVABLE`, one that starts with
//! `never-ready-` is never answered, one that starts with `slow-` takes a minute longer.

pub mod account;
pub mod answers;
mod bans;
pub mod behaviour;
mod broken;
pub mod clock;
pub mod config;
mod exchange;
pub mod faults;
pub mod ledger;
pub mod pace;
mod pingback;
pub mod provider;
pub mod server;

pub use account::Account;
pub use answers::task_of;
pub use behaviour::Behaviour;
pub use clock::VirtualClock;
pub use config::BehaviourConfig;
pub use faults::{Call, Fault, FaultPlan, Planned};
pub use ledger::Ledger;
pub use provider::{Latency, PingbackHook, SimProvider};
pub use server::{Front, Sim, SimConfig, SimHandle};
