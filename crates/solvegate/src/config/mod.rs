//! The configuration, in two stages: `written` reads the values of file, environment and command line; `valid` checks
//! what they mean together. Everything after this module works with [`Config`] and checks nothing again.
//! [`schema`] prints the same keys as JSON Schema, `tests/reference.rs` as docs/configuration.md and as an example file.

mod error;
mod schema;
mod valid;
mod written;

use std::path::{Path, PathBuf};

use domain::secret::Secret;

pub use error::ConfigError;
pub use schema::schema;
pub use valid::{
    Admin, Callbacks, ClaimRules, Config, LOCAL, Pingback, Polling, Schedule, Service, StoreUrl,
    Tls, Upstream, Worker,
};
pub use written::{Environment, Flags, read_duration};

use written::{File, Origin, Reader};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "solvegate.toml";

/// The places a configuration is read from. A reload reads the same places again.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file named on the command line.
    pub file: Option<PathBuf>,
    pub environment: Environment,
    pub flags: Flags,
}

impl Sources {
    /// Reads and checks everything. Nothing is started and nothing is written.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let file = self.path().map(File::read).transpose()?;
        let keys = written::read(file.as_ref(), &self.environment, &self.flags)?;
        valid::check(keys, &self.environment, self.flags.data.as_deref())
    }

    /// Reads a secret that is not part of the configuration: `env:NAME`, `file:PATH` or, unless `option` is one of the
    /// command line, itself.
    pub fn secret(&self, option: &str, written: &str) -> Result<Secret, ConfigError> {
        let origin = Origin::Named(option.into());
        Reader::new(&self.environment, None)
            .secret(written, &origin)
            .map_err(|what| ConfigError::at(option, what))
    }

    /// The file that is read, if there is one.
    pub fn path(&self) -> Option<&Path> {
        let default = || Path::new(DEFAULT_FILE).exists().then_some(Path::new(DEFAULT_FILE));
        self.file.as_deref().or_else(default)
    }
}

#[cfg(test)]
mod tests;
