//! One module per backend. The backends on servers have the same files: `address` reads the URL, `connection` talks to the server,
//! `commit` validates and writes, `health` says what is wrong with the server, and `notify` wakes the other gateways. They share
//! the kit in `server`.

#[cfg(feature = "dynamodb")]
#[expect(
    clippy::disallowed_methods,
    reason = "connections have timeouts of their own; decisions get the time from their caller"
)]
pub(crate) mod dynamodb;
pub(crate) mod embedded;
pub(crate) mod memory;
#[expect(
    clippy::disallowed_methods,
    reason = "connections have timeouts of their own; decisions get the time from their caller"
)]
pub(crate) mod postgres;
#[expect(
    clippy::disallowed_methods,
    reason = "connections have timeouts of their own; decisions get the time from their caller"
)]
pub(crate) mod redis;
#[expect(
    clippy::disallowed_methods,
    reason = "connections have timeouts of their own; decisions get the time from their caller"
)]
mod server;
