//! Faults only a test inside the crate can make.
