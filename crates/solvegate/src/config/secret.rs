//! Where secrets are found: `env:NAME`, `file:PATH` with a mode of 0600 or stricter, or the secret itself in a
//! configuration file that only its owner can read.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use domain::secret::Secret;

use super::{ConfigError, Environment, File, raw::RawSecret};

/// Reads secrets from where they are said to be.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) environment: &'a Environment,
    file: Option<&'a File>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(environment: &'a Environment, file: Option<&'a File>) -> Self {
        Self { environment, file }
    }

    /// Reads the secret called `place` in messages.
    pub(super) fn read(&self, place: &str, raw: &RawSecret) -> Result<Secret, ConfigError> {
        let refused = |what: String| ConfigError::at(place, what);
        if let Some(name) = raw.0.strip_prefix("env:") {
            let value = self.environment.get(name);
            let missing = || refused(format!("the environment variable {name} is not set"));
            return value.map(Secret::new).ok_or_else(missing);
        }
        if let Some(path) = raw.0.strip_prefix("file:") {
            return read_file(Path::new(path)).map_err(refused);
        }
        if self.is_written_in_file(&raw.0) {
            self.check_own_file().map_err(refused)?;
        }
        if raw.0.is_empty() { Err(refused("is empty".into())) } else { Ok(Secret::new(&raw.0)) }
    }

    /// A value that came from the environment does not make the file a secret one.
    fn is_written_in_file(&self, value: &str) -> bool {
        self.file.is_some_and(|file| file.text.contains(value))
    }

    fn check_own_file(&self) -> Result<(), String> {
        let Some(file) = self.file else { return Ok(()) };
        let otherwise = "; or write env:NAME or file:PATH instead of the secret";
        check_mode(&file.path).map_err(|why| format!("{why}{otherwise}"))
    }
}

fn read_file(path: &Path) -> Result<Secret, String> {
    check_mode(path)?;
    let text = fs::read_to_string(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let text = text.trim();
    if text.is_empty() {
        Err(format!("{} is empty", path.display()))
    } else {
        Ok(Secret::new(text))
    }
}

fn check_mode(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let about = fs::metadata(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let mode = about.permissions().mode() & 0o777;
    let others = mode & 0o077;
    if others == 0 {
        return Ok(());
    }
    Err(format!("{shown} holds a secret and its mode is {mode:04o}; run: chmod 600 {shown}"))
}
