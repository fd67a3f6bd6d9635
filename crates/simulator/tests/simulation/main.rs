//! Deterministic runs of the real engine, and the exhaustive model of its protocol.

mod judge;
mod model;
mod ports;
mod seeds;
mod stories;
mod world;
