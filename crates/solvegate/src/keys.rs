//! Keys the program makes itself at first start: shown once, kept in files only their owner can read, so that
//! `--key file:solvegate-data/worker.key` works for whoever may read that directory and for nobody else.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use domain::secret::Secret;
use doors::KeyDigest;

use crate::{
    chance::SystemChance,
    config::Sources,
    exit::{Exit, Failure},
};

/// The keys of a gateway that was given none.
#[derive(Clone, Debug)]
pub struct MadeKeys {
    /// For the worker called `local`.
    pub worker: MadeKey,
    /// For the admin.
    pub admin: MadeKey,
}

/// One made key.
#[derive(Clone, Debug)]
pub struct MadeKey {
    /// What a caller's key is compared with.
    pub digest: KeyDigest,
    /// The key itself, at the start that made it and never again.
    pub fresh: Option<Secret>,
}

/// Where the worker's key is kept in the data directory.
pub const WORKER_FILE: &str = "worker.key";
/// Where the admin's key is kept in the data directory.
pub const ADMIN_FILE: &str = "admin.key";

// === impl MadeKeys ===

impl MadeKeys {
    /// Reads what an earlier start made, or makes them now. Without a directory they live as long as the process.
    pub fn in_directory(data: Option<&Path>, chance: &SystemChance) -> Result<Self, Failure> {
        let key =
            |name: &str| MadeKey::in_file(data.map(|data| data.join(name)).as_deref(), chance);
        Ok(Self { worker: key(WORKER_FILE)?, admin: key(ADMIN_FILE)? })
    }
}

// === impl MadeKey ===

impl MadeKey {
    fn in_file(path: Option<&Path>, chance: &SystemChance) -> Result<Self, Failure> {
        if let Some(path) = path.filter(|path| path.exists()) {
            return Self::read(path);
        }
        let key = Secret::new(chance.key());
        if let Some(path) = path {
            write_private(path, key.expose())?;
        }
        let digest = KeyDigest::of(key.expose()).map_err(Failure::of(Exit::Failed))?;
        Ok(Self { digest, fresh: Some(key) })
    }

    /// A file that others can read is refused, as every secret file is.
    fn read(path: &Path) -> Result<Self, Failure> {
        let place = path.display().to_string();
        let key = Sources::default().secret(&place, &format!("file:{place}"))?;
        let digest = KeyDigest::of(key.expose()).map_err(|error| {
            let way_out = "delete it and start again to have a new one made";
            Failure::new(Exit::Usage, format!("{place} is damaged ({error}); {way_out}"))
        })?;
        Ok(Self { digest, fresh: None })
    }
}

/// Writes a file only its owner can read; it is on disk when this returns.
pub fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error: std::io::Error| {
        Failure::new(Exit::Usage, format!("{} cannot be written: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn keys_are_made_once_shown_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let chance = SystemChance::start().unwrap();
        let first = MadeKeys::in_directory(Some(dir.path()), &chance).unwrap();
        let shown = first.worker.fresh.unwrap();
        let mode = fs::metadata(dir.path().join(WORKER_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = MadeKeys::in_directory(Some(dir.path()), &chance).unwrap();
        assert!(again.worker.fresh.is_none() && again.admin.fresh.is_none());
        assert!(again.worker.digest == KeyDigest::of(shown.expose()).unwrap());
        assert!(again.worker.digest != again.admin.digest);
    }

    #[test]
    fn a_damaged_or_open_key_file_is_said_and_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(WORKER_FILE);
        write_private(&path, "too short").unwrap();
        let chance = SystemChance::start().unwrap();
        let refusal = || MadeKeys::in_directory(Some(dir.path()), &chance).unwrap_err().to_string();
        assert!(refusal().contains("delete it"), "{}", refusal());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refusal().contains("chmod 600"), "{}", refusal());
        assert_eq!(fs::read_to_string(&path).unwrap(), "too short");
    }
}
