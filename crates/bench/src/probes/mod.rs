//! Plain connections to the server behind a store: the cheapest round trip, the server's counters, and removal of
//! everything the bench wrote. They can delete a whole store, so they are here and not in a crate that ships.

pub(crate) mod postgres;
pub(crate) mod redis;

/// The server's counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Commands that clients sent to Redis, or commits of all gateways in PostgreSQL.
    pub(crate) calls: u64,
    /// Bytes of memory of Redis, or on disk in PostgreSQL.
    pub(crate) bytes: u64,
}
