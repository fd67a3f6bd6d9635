//! The doors over real sockets, in front of the real engine, the memory store and the simulated provider.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a helper that panics fails the test it helps; real sockets need real time"
)]

mod batches;
mod callbacks;
mod client;
mod compat;
mod dead_letters;
mod drain;
mod faulty;
mod golden;
mod http2;
mod neighbours;
mod pages;
mod pauses;
mod pingback;
mod pools;
mod queue;
mod roles;
mod secrets;
mod slow;
mod smuggling;
mod solves;
mod strangers;
mod tls;
mod world;
