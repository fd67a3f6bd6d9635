//! The simulated provider: one seeded behaviour, over HTTP or in process. It solves nothing: its tokens are made up. Its ledger
//! shows what the gateway paid for.
//!
//! # Layout
//! - [`behaviour`]: the provider's logic, without I/O; [`config`]: its options; [`pace`]: solve times and prices; [`answers`]:
//!   made-up answers; `bans`: temporary bans
//! - [`faults`]: planned faults; [`ledger`]: what was received, accepted, charged and answered
//! - [`account`]: these three together, shared by both fronts; `journal`: the file that tasks survive a restart in
//! - [`server`]: over HTTP, with `exchange` for in.php and res.php, `broken` for faulty replies and `pingback` for pingbacks
//! - [`provider`]: in process, in virtual time; [`clock`]: the wall clock, and virtual time
//!
//! # Trying things by hand
//! A sitekey that starts with `unsolvable-` ends in `ERROR_CAPTCHA_UNSOLVABLE`, one that starts with
//! `never-ready-` is never answered, one that starts with `slow-` takes a minute longer.
//!
//! # As a test double
//! In process, the provider is a `SimProvider` in virtual time. Here the reply to a submission is lost: the caller cannot know
//! whether a task exists, but the ledger shows it.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use domain::{
//!     challenge::{Challenge, ChallengeParts, Kind},
//!     id::{AttemptName, Nonce, SolveId},
//!     ports::{Provider, Submission},
//! };
//! use simulator::{
//!     Account, BehaviourConfig, Call, Fault, Latency, Planned, SimProvider, VirtualClock,
//! };
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() {
//!     let account = Account::new(BehaviourConfig::new(7));
//!     let clock = Arc::new(VirtualClock::new(tokio::time::Instant::now(), Duration::ZERO));
//!     let provider = SimProvider::new(account.clone(), clock, Latency::default());
//!     account.plan(Planned::next(Call::Submit, Fault::Drop).accepted());
//!
//!     let files = [("body".to_owned(), vec![1, 2, 3])].into();
//!     let picture = Challenge::new(Kind::Image, ChallengeParts { files, ..ChallengeParts::default() }).unwrap();
//!     let attempt =
//!         AttemptName { solve: SolveId::from_number(1), attempt: 1, nonce: Nonce::from_number(1) };
//!     let submission = provider.submit(&picture, attempt).await;
//!
//!     assert!(matches!(submission, Submission::Ambiguous { .. }));
//!     let ledger = account.ledger();
//!     assert_eq!(ledger.accepted.len(), 1, "a task exists, and it is paid");
//!     assert_eq!(ledger.accepted[0].nonce, Some(attempt.nonce));
//! }
//! ```

pub mod account;
pub mod answers;
mod bans;
pub mod behaviour;
mod broken;
pub mod clock;
pub mod config;
mod exchange;
pub mod faults;
mod journal;
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
pub use provider::{Latency, SimProvider};
pub use server::{Sim, SimConfig, SimHandle};
