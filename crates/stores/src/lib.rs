//! The shelves: one module per backend, one conformance suite for all.
