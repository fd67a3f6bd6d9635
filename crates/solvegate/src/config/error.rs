//! What is wrong with a configuration: where, what, and how to put it right. Never a value that may be secret.

use std::fmt;

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ConfigError {
    place: String,
    what: String,
}

impl ConfigError {
    /// `place` is a file and line, a variable or a key; `what` says what is wrong and how to put it right.
    pub fn at(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { place: place.to_string(), what: what.to_string() }
    }
}
