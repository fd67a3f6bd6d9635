//! Keys that the gateway generates at its first start. They are shown once, on a terminal; where the output goes to a log
//! instead, they are in files that only the owner can read, to be deleted once read. Otherwise only their digests are saved, so
//! a copy of the data directory does not give access. The callback secret is the exception: signing needs it, and it gives no
//! access.

use std::{
    env::temp_dir,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{ErrorKind, IsTerminal as _, Write as _, stdout},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{key::KeyDigest, ports::Chance as _, secret::Secret};

use crate::{
    chance::SystemChance,
    config::{Config, Sources},
    exit::{Exit, Failure},
};

/// The keys generated for roles without a configured key.
#[derive(Clone, Debug)]
pub struct GeneratedKeys {
    /// For the worker `local`, if no worker is configured.
    pub worker: Option<GeneratedKey>,
    /// For the admin called `admin`, if no admin is configured.
    pub admin: Option<GeneratedKey>,
    /// Where they are without a data directory.
    _unnamed: Option<Arc<UnnamedDir>>,
}

/// A private directory that is gone with the keys in it, which nobody accepts then.
#[derive(Debug)]
struct UnnamedDir(PathBuf);

#[derive(Clone, Debug)]
pub struct GeneratedKey {
    pub digest: KeyDigest,
    /// The key itself, only at the start that generated it.
    pub fresh: Option<FreshKey>,
}

/// A key that was generated at this start.
#[derive(Clone, Debug)]
pub enum FreshKey {
    /// To be shown.
    Shown(Secret),
    /// Written to this file, because the output is no terminal: logs are kept, copied and read by many.
    Written(PathBuf),
}

/// Where a generated key and its digest are saved.
#[derive(Clone, Debug, Default)]
struct KeyFiles {
    /// Without it, the key lasts as long as the process.
    digest: Option<PathBuf>,
    /// `None` to show the key.
    key: Option<PathBuf>,
}

// Files in the data directory.
pub const WORKER_FILE: &str = "worker.key.sha256";
pub const ADMIN_FILE: &str = "admin.key.sha256";
const WORKER_KEY: &str = "worker.key";
const ADMIN_KEY: &str = "admin.key";
pub const CALLBACK_FILE: &str = "callback.secret";
pub const PINGBACK_FILE: &str = "pingback.secret";

/// The secret that signs the addresses of pingbacks: the configured one, or one generated at the first start. Without a data
/// directory it lasts as long as the process, as the solves do.
pub fn pingback_secret(config: &Config, chance: &SystemChance) -> Result<Option<Secret>, Failure> {
    let Some(pingback) = &config.upstream.pingback else { return Ok(None) };
    let random = || random_secret(chance);
    let saved = configured_or_saved(config, pingback.secret.as_ref(), PINGBACK_FILE, random)?;
    Ok(Some(saved.unwrap_or_else(|| Secret::new(random()))))
}

/// The secret that signs callbacks: the configured one, or one generated at the first start. It is saved as it is, because
/// signing needs it and receivers verify with it. `None` without a directory to save it in.
pub fn callback_secret(config: &Config, chance: &SystemChance) -> Result<Option<Secret>, Failure> {
    let random = || format!("whsec_{}", random_secret(chance));
    configured_or_saved(config, config.callbacks.secret.as_ref(), CALLBACK_FILE, random)
}

/// 256 random bits.
fn random_secret(chance: &SystemChance) -> String {
    STANDARD.encode([(); 4].map(|()| chance.draw().to_ne_bytes()).concat())
}

/// The configured secret, or the saved one, or a new one that is saved now.
fn configured_or_saved(
    config: &Config,
    configured: Option<&Secret>,
    file: &str,
    make: impl FnOnce() -> String,
) -> Result<Option<Secret>, Failure> {
    let (None, Some(data)) = (configured, config.secrets_dir()) else {
        return Ok(configured.cloned());
    };
    let path = data.join(file);
    if !path.exists() {
        write_private(&path, &make())?;
    }
    read_private(&path).map(Some)
}

/// Like every secret file, it is refused if others can read it.
fn read_private(path: &Path) -> Result<Secret, Failure> {
    let place = path.display().to_string();
    Ok(Sources::default().secret(&place, &format!("file:{place}"))?)
}

// === impl GeneratedKeys ===

impl GeneratedKeys {
    /// Loads or generates the keys that are not configured. Without a data directory they last as long as the process.
    pub fn for_config(config: &Config, chance: &SystemChance) -> Result<Self, Failure> {
        let data = config.data.as_deref();
        // Nobody can guess the name of the directory, so nobody else can have made it.
        let (is_hidden, unnamed) = (!stdout().is_terminal(), format!("solvegate-{}", chance.key()));
        let unnamed = (is_hidden && data.is_none()).then(|| UnnamedDir(temp_dir().join(unnamed)));
        let hidden = data.filter(|_| is_hidden).or(unnamed.as_ref().map(|dir| dir.0.as_path()));
        let key = |digest: &str, key: &str| {
            let digest = data.map(|data| data.join(digest));
            let key = hidden.map(|dir| dir.join(key));
            GeneratedKey::in_files(&KeyFiles { digest, key }, chance)
        };
        let (workers, admins) = (&config.workers, &config.admins);
        Ok(Self {
            worker: workers.is_empty().then(|| key(WORKER_FILE, WORKER_KEY)).transpose()?,
            admin: admins.is_empty().then(|| key(ADMIN_FILE, ADMIN_KEY)).transpose()?,
            _unnamed: unnamed.map(Arc::new),
        })
    }
}

impl Drop for UnnamedDir {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(dir = %self.0.display(), %error, "failed to remove the files of generated keys");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

// === impl GeneratedKey ===

impl GeneratedKey {
    fn in_files(files: &KeyFiles, chance: &SystemChance) -> Result<Self, Failure> {
        if let Some(path) = files.digest.as_ref().filter(|path| path.exists()) {
            return Self::read(path);
        }
        let key = Secret::new(chance.key());
        let digest = KeyDigest::of(key.expose()).map_err(Failure::of(Exit::Failed))?;
        // A start that is killed in between makes another key next time.
        if let Some(path) = &files.key {
            write_private(path, key.expose())?;
        }
        if let Some(path) = &files.digest {
            write_private(path, &digest.to_hex())?;
        }
        let fresh = files.key.clone().map_or(FreshKey::Shown(key), FreshKey::Written);
        Ok(Self { digest, fresh: Some(fresh) })
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let digest = KeyDigest::from_hex(read_private(path)?.expose()).ok_or_else(|| {
            let message = format!(
                "{} is not the digest of a key; delete it and restart to get a new key",
                path.display()
            );
            Failure::new(Exit::Usage, message)
        })?;
        Ok(Self { digest, fresh: None })
    }
}

/// Warns of a data directory that others can read. It is not changed, because it may be the operator's for other purposes
/// too; the files in it are private.
pub fn warn_of_open_dir(dir: &Path) {
    if let Some(mode) = open_to_others(dir) {
        let dir = dir.display();
        tracing::warn!(%dir, mode = %format_args!("{mode:04o}"), "data directory can be read by others, run chmod 700");
    }
}

/// The mode of a directory that others than its owner may use.
pub fn open_to_others(dir: &Path) -> Option<u32> {
    let mode = fs::metadata(dir).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Creates a directory that only its owner can read, because it holds tokens and keys.
pub fn create_private_dir(dir: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| {
        Failure::new(Exit::Unreachable, format!("cannot create {}: {error}", dir.display()))
    })
}

/// Writes a file that only its owner can read. It appears whole or not at all, even after a crash, and is on disk when this
/// returns.
pub fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, text, 0o600)
}

/// The same for a file that everybody may read.
pub fn write_public(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, text, 0o644)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_private_dir(dir)?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let write = || {
        // Left over from a start that was killed; its content was never used.
        if fs::exists(&unfinished)? {
            fs::remove_file(&unfinished)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|error: std::io::Error| {
        Failure::new(Exit::Usage, format!("cannot write {}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Callbacks;

    fn made(path: &Path) -> Result<GeneratedKey, Failure> {
        let files = KeyFiles { digest: Some(path.to_owned()), key: None };
        GeneratedKey::in_files(&files, &SystemChance::start().unwrap())
    }

    fn find_shown(made: GeneratedKey) -> Secret {
        match made.fresh {
            Some(FreshKey::Shown(key)) => key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_for_a_log_is_in_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(dir.path().join(name));
        let files = KeyFiles { digest: at(WORKER_FILE), key: at(WORKER_KEY) };
        let chance = SystemChance::start().unwrap();
        let made = GeneratedKey::in_files(&files, &chance).unwrap();
        let Some(FreshKey::Written(path)) = made.fresh else { panic!("{made:?}") };
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(made.digest == KeyDigest::of(&fs::read_to_string(&path).unwrap()).unwrap());
        fs::remove_file(&path).unwrap();
        let again = GeneratedKey::in_files(&files, &chance).unwrap();
        assert!(again.fresh.is_none() && again.digest == made.digest && !path.exists());
    }

    #[test]
    fn a_key_is_generated_once_shown_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(WORKER_FILE);
        let shown = find_shown(made(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&path).unwrap().contains(shown.expose()), "only its digest");
        let again = made(&path).unwrap();
        assert!(again.fresh.is_none());
        assert!(again.digest == KeyDigest::of(shown.expose()).unwrap());
        assert!(again.digest != made(&dir.path().join(ADMIN_FILE)).unwrap().digest);
    }

    #[test]
    fn the_callback_secret_is_generated_once_and_private_and_the_configured_one_wins() {
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
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_damaged_or_readable_key_file_is_reported_and_not_overwritten() {
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
