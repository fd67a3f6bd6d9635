//! Secrets: `env:NAME`, `file:PATH` with a mode of 0600 or stricter, or the secret itself in a configuration file that
//! only its owner can read or in a variable. On the command line every user of the machine could read it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use domain::secret::Secret;

use super::{Environment, File, tree::Origin};

/// Finds the values that a configuration refers to.
pub(crate) struct Reader<'a> {
    environment: &'a Environment,
    file: Option<&'a File>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(environment: &'a Environment, file: Option<&'a File>) -> Self {
        Self { environment, file }
    }

    pub(crate) fn secret(&self, written: &str, origin: &Origin) -> Result<Secret, String> {
        if let Some(name) = written.strip_prefix("env:") {
            let value = self.environment.get(name).map(Secret::new);
            return value.ok_or_else(|| format!("the environment variable {name} is not set"));
        }
        if let Some(path) = written.strip_prefix("file:") {
            return read_file(Path::new(path));
        }
        if let (Some(file), Origin::File(_)) = (self.file, origin) {
            let otherwise = "; or write env:NAME or file:PATH instead of the secret";
            check_mode(&file.path).map_err(|why| format!("{why}{otherwise}"))?;
        }
        if let Origin::Named(option) = origin
            && option.contains("--")
        {
            return Err(format!(
                "a secret on the command line can be read by every user of this machine; write {option} env:NAME or \
                 {option} file:PATH instead"
            ));
        }
        if written.is_empty() { Err("is empty".into()) } else { Ok(Secret::new(written)) }
    }
}

fn read_file(path: &Path) -> Result<Secret, String> {
    check_mode(path)?;
    let text = fs::read_to_string(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    match text.trim() {
        "" => Err(format!("{} is empty", path.display())),
        text => Ok(Secret::new(text)),
    }
}

/// Refuses a file with a secret that others can read.
pub(crate) fn check_mode(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let about = fs::metadata(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let mode = about.permissions().mode() & 0o777;
    let others = mode & 0o077;
    if others == 0 {
        return Ok(());
    }
    Err(format!("{shown} holds a secret and its mode is {mode:04o}; run: chmod 600 {shown}"))
}
