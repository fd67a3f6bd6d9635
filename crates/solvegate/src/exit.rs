//! How a command ends: documented, stable exit codes, and one sentence that says what to do.

use std::{fmt, process::ExitCode};

use crate::config::ConfigError;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The sort of failure.
    pub exit: Exit,
    message: String,
    /// The reader of stdout closed it, as `| head` does.
    is_closed_pipe: bool,
}

/// The exit codes. Their numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was asked for and failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The gateway, the store or the service cannot be reached.
    Unreachable = 3,
    /// Site not declared, budget or rate used up, wrong key.
    Refused = 4,
    /// The deadline passed.
    Timeout = 5,
}

// === impl Failure ===

impl Failure {
    /// A failure of this sort.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string(), is_closed_pipe: false }
    }

    /// Whether the reader of stdout has read enough. That is no error: the command ends quietly.
    pub fn is_closed_pipe(&self) -> bool {
        self.is_closed_pipe
    }

    /// For `map_err`: any error as a failure of this sort.
    pub fn of<E: fmt::Display>(exit: Exit) -> impl FnOnce(E) -> Self {
        move |error| Self::new(exit, error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Usage, error)
    }
}

/// For output to stdout.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let is_closed_pipe = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self { is_closed_pipe, ..Self::new(Exit::Failed, error) }
    }
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::Refused => 4,
            Exit::Timeout => 5,
        })
    }
}
