//! Opens a store directory for one process. Files of an unknown format are not changed.
//!
//! The directory contains `LOCK` (held while the store is open), `FORMAT` (one line, written once the data file is good) and
//! `store.redb`. `FORMAT` is read first, so that the data file of a newer release is not touched. It also distinguishes a data
//! file that was emptied from one that is new.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use domain::{ports::BoxError, time::Timestamp};
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableTable, StorageError, TableDefinition,
};

use crate::{
    OpenError,
    schema::codec::Codec,
    schema::keys::all,
    schema::tables::{HolderRow, Holders},
    tx::{Order, TypedRead, TypedWrite},
};

use super::{
    CODEC, ROWS,
    disk::{Disk, DiskState},
    tx::EmbeddedTx,
    writer::{Shared, panic_message},
};

/// The format that this release reads and writes.
const FORMAT: u8 = 2;
const FORMAT_LINE: &str = "solvegate embedded store, format ";
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const DATA_FILE: &str = "store.redb";
/// The size of the page cache.
const CACHE_BYTES: usize = 64 << 20;

/// Opens the store in `dir`, and creates the directory if it does not exist.
pub(super) fn open(dir: &Path, codec: Codec) -> Result<Shared, OpenError> {
    let unusable = |source| OpenError::Directory { dir: dir.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
    let lock = lock(dir)?;
    let known = read_format(dir)?;
    let file = private_file(&dir.join(DATA_FILE)).map_err(unusable)?;
    if known && file.metadata().map_err(unusable)?.len() == 0 {
        return Err(damaged(dir, "its data file is missing or empty"));
    }
    let state = Arc::new(DiskState::default());
    let disk = Disk { file, state: Arc::clone(&state) };
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| open_data(dir, disk)));
    let database = opened.unwrap_or_else(|panic| Err(damaged(dir, panic_message(&panic))))?;
    if !known {
        write_format(dir).map_err(unusable)?;
    }
    Ok(Shared::new(database, lock, state, codec))
}

/// The lock of the directory. It is released explicitly: a forked process has a copy of the descriptor until it executes its
/// program, and closing only ours would leave the directory locked until then.
#[derive(Debug)]
pub(super) struct DirectoryLock(File);

#[cfg(test)]
impl DirectoryLock {
    pub(super) fn copy(&self) -> File {
        self.0.try_clone().unwrap()
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "failed to release the lock of the store directory");
        }
    }
}

fn lock(dir: &Path) -> Result<DirectoryLock, OpenError> {
    let unusable = |source| OpenError::Directory { dir: dir.to_owned(), source };
    let lock = private_file(&dir.join("LOCK")).map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => Ok(DirectoryLock(lock)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}

/// Opens or creates a file, and makes it readable for its owner only.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

// === the format ===

/// Whether the directory has a format file. A format that this release does not know is an error.
fn read_format(dir: &Path) -> Result<bool, OpenError> {
    let unusable = |source| OpenError::Directory { dir: dir.to_owned(), source };
    let mut line = String::new();
    match File::open(format_file(dir)) {
        Ok(file) => file.take(200).read_to_string(&mut line).map_err(unusable)?,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(why) => return Err(unusable(why)),
    };
    let found = line.trim_end().strip_prefix(FORMAT_LINE).unwrap_or("unknown").to_owned();
    if found == FORMAT.to_string() {
        return Ok(true);
    }
    Err(OpenError::Format { dir: dir.to_owned(), found, known: FORMAT })
}

fn write_format(dir: &Path) -> io::Result<()> {
    let unfinished = dir.join("FORMAT.new");
    let mut file = private_file(&unfinished)?;
    file.set_len(0)?;
    writeln!(file, "{FORMAT_LINE}{FORMAT}")?;
    file.sync_all()?;
    std::fs::rename(&unfinished, format_file(dir))?;
    File::open(dir)?.sync_all()
}

fn format_file(dir: &Path) -> PathBuf {
    dir.join("FORMAT")
}

// === the data ===

fn open_data(dir: &Path, disk: Disk) -> Result<Database, OpenError> {
    let repaired = Arc::new(AtomicBool::new(false));
    let repair = Arc::clone(&repaired);
    let mut database = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .set_repair_callback(move |_| repair.store(true, Ordering::Relaxed))
        .create_with_backend(disk)
        .map_err(|why| refused(dir, why))?;
    // After a crash, redb has already checked the whole file. After a clean close it trusts the file, and a page that
    // changed since then could hide rows unnoticed.
    let sound = repaired.load(Ordering::Relaxed)
        || database.check_integrity().map_err(|why| refused(dir, why))?;
    if !sound {
        return Err(damaged(dir, "a page of its data file changed while it was closed"));
    }
    prepare(dir, &database).map_err(|why| match why.downcast() {
        Ok(refused) => *refused,
        Err(why) => damaged(dir, why.to_string()),
    })?;
    Ok(database)
}

/// Checks the format inside the file, and deletes the holders: the lock of the directory proves that they are dead.
fn prepare(dir: &Path, database: &Database) -> Result<(), BoxError> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut meta = transaction.open_table(META)?;
        let found = meta.get("format")?.map(|row| row.value().to_vec());
        match found.as_deref() {
            None => drop(meta.insert("format", [FORMAT].as_slice())?),
            Some([FORMAT]) => {}
            Some(other) => {
                let (dir, found) = (dir.to_owned(), format!("{other:?}"));
                return Err(OpenError::Format { dir, found, known: FORMAT }.into());
            }
        }
        let mut rows = EmbeddedTx::new(transaction.open_table(ROWS)?, CODEC);
        for (holder, row) in rows.scan::<Holders>(all(), Order::Rising, usize::MAX)? {
            // The lock of the directory proves that they are dead, so nobody waits for what they left.
            let until = Timestamp::default();
            rows.put::<Holders>(holder, HolderRow { until, ..row })?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn refused(dir: &Path, why: DatabaseError) -> OpenError {
    let path = dir.to_owned();
    if let DatabaseError::DatabaseAlreadyOpen = why {
        return OpenError::InUse { dir: path };
    }
    if let DatabaseError::UpgradeRequired(found) = why {
        let found = format!("{found} of its data file");
        return OpenError::Format { dir: path, found, known: FORMAT };
    }
    // The operating system reported it, so the disk failed. Otherwise the contents of the file are at fault.
    if let DatabaseError::Storage(StorageError::Io(source)) = why {
        return match source.raw_os_error() {
            Some(_) => OpenError::Directory { dir: path, source },
            None => damaged(dir, source.to_string()),
        };
    }
    damaged(dir, why.to_string())
}

fn damaged(dir: &Path, why: impl Into<String>) -> OpenError {
    OpenError::Damaged { dir: dir.to_owned(), why: why.into() }
}
