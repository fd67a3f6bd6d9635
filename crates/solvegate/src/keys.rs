//! Keys the program makes itself at first start: shown once, kept only as digests, in files only their owner can read.
//! Whoever copies the data directory cannot call with what is in it. The secret of callbacks is the exception: it is
//! needed to sign, and it opens no door.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{ports::Chance as _, secret::Secret};
use doors::KeyDigest;

use crate::{
    chance::SystemChance,
    config::{Config, Sources},
    exit::{Exit, Failure},
};

/// The keys a gateway makes because it was given none.
#[derive(Clone, Debug)]
pub struct MadeKeys {
    /// For the worker called `local`, when no worker is configured.
    pub worker: Option<MadeKey>,
    /// For the admin, when none is configured.
    pub admin: Option<MadeKey>,
}

/// One made key.
#[derive(Clone, Debug)]
pub struct MadeKey {
    /// What a caller's key is compared with.
    pub digest: KeyDigest,
    /// The key itself, at the start that made it and never again.
    pub fresh: Option<Secret>,
}

/// Where the digest of the worker's key is kept in the data directory.
pub const WORKER_FILE: &str = "worker.key.sha256";
/// Where the digest of the admin's key is kept in the data directory.
pub const ADMIN_FILE: &str = "admin.key.sha256";
/// Where the made secret of callbacks is kept in the data directory.
pub const CALLBACK_FILE: &str = "callback.secret";

/// Where the made secret of pingbacks is kept in the data directory.
pub const PINGBACK_FILE: &str = "pingback.secret";

/// What the addresses of pingbacks are proved with, when the service is to call back: the configured secret, or one made
/// at the first start. Without a directory to keep it in it lives as long as the process, as the solves do.
pub fn pingback_secret(config: &Config, chance: &SystemChance) -> Result<Option<Secret>, Failure> {
    let Some(pingback) = &config.upstream.pingback else { return Ok(None) };
    match (&pingback.secret, config.secrets_dir()) {
        (Some(secret), _) => Ok(Some(secret.clone())),
        (None, Some(data)) => kept(&data.join(PINGBACK_FILE), || drawn(chance)).map(Some),
        (None, None) => Ok(Some(Secret::new(drawn(chance)))),
    }
}

/// 256 bits.
fn drawn(chance: &SystemChance) -> String {
    STANDARD.encode([(); 4].map(|()| chance.draw().to_ne_bytes()).concat())
}

/// What an earlier start made, or what is made now.
fn kept(path: &Path, make: impl FnOnce() -> String) -> Result<Secret, Failure> {
    if !path.exists() {
        write_private(path, &make())?;
    }
    let place = path.display().to_string();
    Ok(Sources::default().secret(&place, &format!("file:{place}"))?)
}

/// What callbacks are signed with: the configured secret, or one made at the first start. Kept as it is, because
/// signing needs it and receivers must be given it. `None` where there is no place to keep it in.
pub fn callback_secret(config: &Config, chance: &SystemChance) -> Result<Option<Secret>, Failure> {
    if let Some(secret) = &config.callbacks.secret {
        return Ok(Some(secret.clone()));
    }
    let Some(data) = config.secrets_dir() else { return Ok(None) };
    kept(&data.join(CALLBACK_FILE), || format!("whsec_{}", drawn(chance))).map(Some)
}

// === impl MadeKeys ===

impl MadeKeys {
    /// Reads what an earlier start made, or makes now what is not configured. Without a directory they live as long
    /// as the process.
    pub fn for_config(config: &Config, chance: &SystemChance) -> Result<Self, Failure> {
        let key = |name: &str| {
            let path = config.data.as_ref().map(|data| data.join(name));
            MadeKey::in_file(path.as_deref(), chance)
        };
        Ok(Self {
            worker: config.workers.is_empty().then(|| key(WORKER_FILE)).transpose()?,
            admin: config.admin.is_none().then(|| key(ADMIN_FILE)).transpose()?,
        })
    }
}

// === impl MadeKey ===

impl MadeKey {
    fn in_file(path: Option<&Path>, chance: &SystemChance) -> Result<Self, Failure> {
        if let Some(path) = path.filter(|path| path.exists()) {
            return Self::read(path);
        }
        let key = Secret::new(chance.key());
        let digest = KeyDigest::of(key.expose()).map_err(Failure::of(Exit::Failed))?;
        if let Some(path) = path {
            write_private(path, &digest.to_hex())?;
        }
        Ok(Self { digest, fresh: Some(key) })
    }

    /// A file that others can read is refused, as every secret file is.
    fn read(path: &Path) -> Result<Self, Failure> {
        let place = path.display().to_string();
        let text = Sources::default().secret(&place, &format!("file:{place}"))?;
        let digest = KeyDigest::from_hex(text.expose()).ok_or_else(|| {
            let way_out = "delete it and start again to have a new key made";
            Failure::new(Exit::Usage, format!("{place} holds no digest of a key; {way_out}"))
        })?;
        Ok(Self { digest, fresh: None })
    }
}

/// Makes a directory nobody else may look into: tokens and keys lie in it.
pub fn make_private(dir: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| {
        Failure::new(Exit::Unreachable, format!("{} cannot be made: {error}", dir.display()))
    })
}

/// Writes a file only its owner can read. It appears whole or not at all, also after a crash, and is on disk when
/// this returns.
pub fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_private(dir)?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let write = || {
        // Left over from a start that was killed: what is in it was never used.
        if fs::exists(&unfinished)? {
            fs::remove_file(&unfinished)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|error: std::io::Error| {
        Failure::new(Exit::Usage, format!("{} cannot be written: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::Callbacks;

    fn made(path: &Path) -> Result<MadeKey, Failure> {
        MadeKey::in_file(Some(path), &SystemChance::start().unwrap())
    }

    #[test]
    fn a_key_is_made_once_shown_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(WORKER_FILE);
        let shown = made(&path).unwrap().fresh.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&path).unwrap().contains(shown.expose()), "only its digest");
        let again = made(&path).unwrap();
        assert!(again.fresh.is_none());
        assert!(again.digest == KeyDigest::of(shown.expose()).unwrap());
        assert!(again.digest != made(&dir.path().join(ADMIN_FILE)).unwrap().digest);
    }

    #[test]
    fn the_callback_secret_is_made_once_kept_private_and_the_configured_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let mut sources = Sources::default();
        sources.flags.data = Some(dir.path().to_owned());
        let chance = SystemChance::start().unwrap();
        let mut config = sources.load().unwrap();
        let made = callback_secret(&config, &chance).unwrap().unwrap();
        assert_eq!(made.expose().strip_prefix("whsec_").map(str::len), Some(44));
        let about = fs::metadata(dir.path().join(CALLBACK_FILE)).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        assert_eq!(callback_secret(&config, &chance).unwrap(), Some(made));
        config.callbacks.secret = Some(Secret::new("whsec_own"));
        assert_eq!(callback_secret(&config, &chance).unwrap(), config.callbacks.secret);
        config = Config { data: None, callbacks: Callbacks::default(), ..config };
        assert_eq!(callback_secret(&config, &chance).unwrap(), None);
    }

    #[test]
    fn a_start_that_was_killed_while_writing_a_key_does_not_stop_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(WORKER_FILE);
        fs::write(dir.path().join("worker.key.sha256.new"), "half a k").unwrap();
        assert!(made(&path).unwrap().fresh.is_some());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn a_damaged_or_open_key_file_is_said_and_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(WORKER_FILE);
        write_private(&path, "too short").unwrap();
        let refusal = || made(&path).unwrap_err().to_string();
        assert!(refusal().contains("delete it"), "{}", refusal());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refusal().contains("chmod 600"), "{}", refusal());
        assert_eq!(fs::read_to_string(&path).unwrap(), "too short");
    }
}
