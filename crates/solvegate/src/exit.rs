//! Failures of commands: a stable, documented exit code and one sentence that says what to do.

use std::{fmt, process::ExitCode};

use crate::config::ConfigError;

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub exit: Exit,
    message: String,
}

/// The exit codes. Their numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The gateway, the store or the service cannot be reached.
    Unreachable = 3,
    /// Site not declared, budget or rate limit exceeded, wrong key.
    Refused = 4,
    Timeout = 5,
    /// There is not enough to judge by.
    NotJudged = 6,
    /// SIGINT or SIGTERM; the number that shells use for Ctrl-C.
    Interrupted = 130,
}

// === impl Failure ===

impl Failure {
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    /// For `map_err`.
    pub fn of<E: fmt::Display>(exit: Exit) -> impl FnOnce(E) -> Self {
        move |error| Self::new(exit, error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Usage, error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, error)
    }
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
