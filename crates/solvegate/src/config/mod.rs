//! What the operator wants, in two stages: `raw` is what was written (file, environment, flags), `valid` is what
//! it means. Everything after this module works with [`Config`] and checks nothing again.

mod environment;
mod error;
mod raw;
mod secret;
mod shape;
mod valid;

use std::path::{Path, PathBuf};

pub use environment::Environment;
pub use error::ConfigError;
pub use valid::{
    Alerts, Budget, Callbacks, ClaimRules, Config, DEFAULT_LISTEN, Declarations, Pingback, Polling,
    Schedule, Service, StoreUrl, Tls, Upstream, Worker, read_duration,
};

use domain::secret::Secret;
use raw::Raw;

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "solvegate.toml";

/// Everything a configuration is read from. Kept, so that a reload reads the same places again.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file named on the command line.
    pub file: Option<PathBuf>,
    /// The process's environment.
    pub environment: Environment,
    /// The command line.
    pub flags: Flags,
}

/// What the command line says; it wins over file and environment.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--listen`.
    pub listen: Option<String>,
    /// `--data`.
    pub data: Option<PathBuf>,
    /// `--upstream`.
    pub upstream: Option<String>,
    /// `--store`.
    pub store: Option<String>,
    /// `--ledger`.
    pub ledger: Option<String>,
    /// `--tls-cert`.
    pub tls_cert: Option<PathBuf>,
    /// `--tls-key`.
    pub tls_key: Option<PathBuf>,
    /// `--tls-self-signed`.
    pub tls_self_signed: bool,
}

impl Sources {
    /// Reads and checks everything. Nothing is started and nothing is written.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let file = self.file()?;
        let mut table = match &file {
            Some(file) => file.parse()?,
            None => toml::Table::new(),
        };
        environment::overlay(&mut table, &self.environment)?;
        let mut raw = Raw::from_table(table)?;
        raw.apply(&self.flags);
        let secrets = secret::Reader::new(&self.environment, file.as_ref());
        valid::check(raw, &secrets, self.flags.data.as_deref())
    }

    /// Reads a secret given on the command line: `env:NAME`, `file:PATH` or itself.
    pub fn secret(&self, place: &str, written: &str) -> Result<Secret, ConfigError> {
        secret::Reader::new(&self.environment, None).read(place, &raw::RawSecret(written.into()))
    }

    fn file(&self) -> Result<Option<File>, ConfigError> {
        match &self.file {
            Some(path) => File::read(path).map(Some),
            None if Path::new(DEFAULT_FILE).exists() => {
                File::read(Path::new(DEFAULT_FILE)).map(Some)
            }
            None => Ok(None),
        }
    }
}

/// A configuration file that could be read.
#[derive(Debug)]
struct File {
    path: PathBuf,
    text: String,
}

// === impl File ===

impl File {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self { path: path.to_owned(), text }),
            Err(error) => Err(ConfigError::at(path.display(), format!("cannot be read: {error}"))),
        }
    }

    /// Checks keys and types while lines are still known.
    fn parse(&self) -> Result<toml::Table, ConfigError> {
        let spanned =
            toml::de::DeTable::parse(&self.text).map_err(|error| self.at_error(&error))?;
        shape::check_keys(spanned.get_ref())
            .map_err(|unknown| self.at(unknown.span.start, unknown.to_string()))?;
        toml::from_str::<Raw>(&self.text).map_err(|error| self.at_error(&error))?;
        toml::from_str(&self.text).map_err(|error| self.at_error(&error))
    }

    /// Only message and line: the line itself may hold a secret.
    fn at_error(&self, error: &toml::de::Error) -> ConfigError {
        let start = error.span().map_or(0, |span| span.start);
        self.at(start, error.message().replace('\n', ", "))
    }

    fn at(&self, offset: usize, what: String) -> ConfigError {
        let before = self.text.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        ConfigError::at(format!("{}:{line}", self.path.display()), what)
    }
}

#[cfg(test)]
mod tests;
