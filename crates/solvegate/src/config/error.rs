//! An error in the configuration: where it is, what is wrong and how to fix it. It never holds a value that may be secret.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ConfigError {
    place: String,
    what: String,
}

impl ConfigError {
    /// `place` is the key, variable or option as the operator typed it, with file and line where there is one.
    pub fn at(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { place: place.to_string(), what: what.to_string() }
    }
}
