//! Opening a store directory: one process at a time, nothing touched that is not understood.
//!
//! The directory holds `LOCK` (held while open), `FORMAT` (one line, written once the data file is good) and
//! `store.redb`. `FORMAT` is read before the data file, so that a file of a newer release stays as it is, and it tells
//! an emptied file from one that never was.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use domain::id::HolderId;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableTable, StorageError, TableDefinition,
};

use crate::{
    OpenError,
    tables::Holders,
    tx::{Order, TypedRead, TypedWrite, WriteTx},
};

use super::{ROWS, disk::Disk, rows::OpenRows, writer::said};

/// The form of the data this release writes.
const FORMAT: u8 = 2;
const FORMAT_LINE: &str = "solvegate embedded store, format ";
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const DATA_FILE: &str = "store.redb";
/// Pages kept in memory.
const CACHE_BYTES: usize = 64 << 20;

/// An open directory.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) lock: DirectoryLock,
    pub(super) fsyncs: Arc<AtomicU64>,
    #[cfg(test)]
    pub(super) broken: Arc<AtomicBool>,
}

/// Opens the store in `dir`, which is made when it is not there.
pub(super) fn open(dir: &Path) -> Result<Opened, OpenError> {
    let unusable = |source| OpenError::Directory { dir: dir.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
    let lock = lock(dir)?;
    let known = read_format(dir)?;
    let file = private_file(&dir.join(DATA_FILE)).map_err(unusable)?;
    if known && file.metadata().map_err(unusable)?.len() == 0 {
        return Err(damaged(dir, "its data file is missing or empty"));
    }
    let fsyncs = Arc::new(AtomicU64::new(0));
    let disk = Disk {
        file,
        fsyncs: Arc::clone(&fsyncs),
        #[cfg(test)]
        broken: Arc::default(),
    };
    #[cfg(test)]
    let broken = Arc::clone(&disk.broken);
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| open_data(dir, disk)));
    let database = opened.unwrap_or_else(|panic| Err(damaged(dir, said(&panic))))?;
    if !known {
        write_format(dir).map_err(unusable)?;
    }
    Ok(Opened {
        database,
        lock,
        fsyncs,
        #[cfg(test)]
        broken,
    })
}

/// The directory's lock. It is released explicitly: a process that this one forks has a copy of the descriptor until it
/// executes its program, and closing ours would leave the directory locked until then.
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

/// A file that only its owner can read, whoever made it.
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

/// Whether the directory says it holds a store this release knows.
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
    let walked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&walked);
    let mut database = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .set_repair_callback(move |_| seen.store(true, Ordering::Relaxed))
        .create_with_backend(disk)
        .map_err(|why| refused(dir, why))?;
    // After a crash redb has walked the file already. After a clean close it trusts the file, and a page that changed
    // since could hide rows without anybody noticing.
    let sound = walked.load(Ordering::Relaxed)
        || database.check_integrity().map_err(|why| refused(dir, why))?;
    if !sound {
        return Err(damaged(dir, "a page of its data file changed while it was closed"));
    }
    prepare(dir, &database).map_err(|why| match why {
        Unready::Refused(why) => why,
        Unready::Failed(why) => damaged(dir, why.to_string()),
    })?;
    Ok(database)
}

enum Unready {
    Refused(OpenError),
    Failed(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for Unready {
    fn from(why: E) -> Self {
        Self::Failed(why.into())
    }
}

/// Checks the format inside the file and forgets the holders: the lock proves that they are dead.
fn prepare(dir: &Path, database: &Database) -> Result<(), Unready> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut meta = transaction.open_table(META)?;
        let found = meta.get("format")?.map(|row| row.value().to_vec());
        match found.as_deref() {
            None => drop(meta.insert("format", [FORMAT].as_slice())?),
            Some([FORMAT]) => {}
            Some(other) => {
                let found = format!("{other:?}");
                let dir = dir.to_owned();
                return Err(Unready::Refused(OpenError::Format { dir, found, known: FORMAT }));
            }
        }
        let mut rows = OpenRows::new(transaction.open_table(ROWS)?);
        forget_holders(&mut rows).map_err(|why| Unready::Refused(damaged(dir, why.to_string())))?;
    }
    transaction.commit()?;
    Ok(())
}

fn forget_holders(rows: &mut dyn WriteTx) -> Result<(), domain::ports::StoreError> {
    let all = HolderId::from_number(0)..=HolderId::from_number(u64::MAX);
    for (holder, _) in rows.scan::<Holders>(all, Order::Rising, usize::MAX)? {
        rows.take::<Holders>(&holder)?;
    }
    Ok(())
}

fn refused(dir: &Path, why: DatabaseError) -> OpenError {
    let dir_of = || dir.to_owned();
    if let DatabaseError::DatabaseAlreadyOpen = why {
        return OpenError::InUse { dir: dir_of() };
    }
    if let DatabaseError::UpgradeRequired(found) = why {
        let found = format!("{found} of its data file");
        return OpenError::Format { dir: dir_of(), found, known: FORMAT };
    }
    // What the disk itself says, as opposed to what is on it.
    if let DatabaseError::Storage(StorageError::Io(source)) = why {
        let said = source.to_string();
        return match source.raw_os_error() {
            Some(_) => OpenError::Directory { dir: dir_of(), source },
            None => damaged(dir, said),
        };
    }
    damaged(dir, why.to_string())
}

fn damaged(dir: &Path, why: impl Into<String>) -> OpenError {
    OpenError::Damaged { dir: dir.to_owned(), why: why.into() }
}
