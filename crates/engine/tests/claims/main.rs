//! The life of a claim: the engine on the memory store, with a provider whose replies the test lists, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the cases it is about")]

mod admit;
mod batches;
mod drain;
mod driver;
mod fetch;
mod gateway;
mod plan;
mod poll;
mod provider;
mod retry;
mod serverless;
mod start;
mod store;
mod submit;
mod withdraw;
