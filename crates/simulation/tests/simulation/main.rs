//! Deterministic runs of the real engine, and the exhaustive model of its protocol.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the cases it is about")]

mod archive;
mod callbacks;
mod dead_letters;
mod guard;
mod model;
mod outages;
mod pauses;
mod polling;
mod pools;
mod queue;
mod receivers;
mod reconcile;
mod rounds;
mod seeds;
mod shares;
mod stories;
