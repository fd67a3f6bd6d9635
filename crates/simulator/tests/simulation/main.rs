//! Deterministic runs of the real engine, and the exhaustive model of its protocol.

mod model;
