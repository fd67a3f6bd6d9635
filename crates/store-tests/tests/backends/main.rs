//! Guarantees of the backends beyond the conformance suite: the same history as the memory store, durability, several
//! gateways on one server, and recovery when the server, the network or the process fails.

mod differential;
mod durability;
mod dynamodb;
mod gateways;
mod listings;
mod postgres;
mod redis;
mod schedule;
mod sealed;
mod servers;

use store_tests::{connect_to_corner as connect, fresh_corner as prefix};
