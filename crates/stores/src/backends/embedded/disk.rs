//! The data file of the embedded store: positioned reads and writes, and a count of its fsyncs.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use redb::StorageBackend;

/// The data file. The lock of the directory, which is taken first, keeps other processes away.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) file: File,
    pub(super) state: Arc<DiskState>,
}

/// The part of a disk that the store can reach while redb owns the file.
#[derive(Debug, Default)]
pub(super) struct DiskState {
    pub(super) fsyncs: AtomicU64,
    #[cfg(test)]
    pub(super) broken: std::sync::atomic::AtomicBool,
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.state.broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is broken, for a test"));
        }
        self.state.fsyncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
}
