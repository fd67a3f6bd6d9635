//! A file with the tasks of an account, so that they outlive the process. Used by `account`.
//!
//! Each line is a task as it was after a change; of several lines about one task the last one counts. Simulators on one
//! machine may share the file: each reads the lines of the others, and answers for their tasks too. A line is handed to
//! the operating system before its task is answered, so `kill -9` loses nothing; a power failure may.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use domain::money::Money;
use serde::{Deserialize, Serialize};

use crate::behaviour::{Behaviour, TaskRecord};

/// The open file.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Where the lines begin that were not read yet.
    read_to: u64,
    /// The size at which old tasks are next removed from the file.
    rewrite_at: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The cost of the tasks that were removed from the file. The first line of a rewritten file.
    SpentBefore(Money),
    Task(TaskRecord),
}

/// A file of this size is rewritten without the tasks that can no longer be fetched.
const REWRITE_AT: u64 = 512 * 1024;

// === impl Journal ===

impl Journal {
    /// Opens the file, or creates it, and gives its tasks to the behaviour.
    pub(crate) fn open(path: &Path, behaviour: &mut Behaviour) -> io::Result<Self> {
        let mut journal =
            Self { path: path.to_owned(), file: open(path)?, read_to: 0, rewrite_at: REWRITE_AT };
        journal.begin(behaviour)?;
        journal.end(behaviour)?;
        Ok(journal)
    }

    /// Locks the file against other processes, so that no two of them give a task the same id, and reads what they wrote.
    pub(crate) fn begin(&mut self, behaviour: &mut Behaviour) -> io::Result<()> {
        self.file.lock()?;
        while !self.is_current()? {
            // Another process has rewritten the file since it was opened. Its tasks are known here, or follow below.
            self.file = open(&self.path)?;
            self.read_to = 0;
            self.file.lock()?;
        }
        self.catch_up(behaviour)
    }

    /// Appends the tasks that changed, and unlocks the file.
    pub(crate) fn end(&mut self, behaviour: &mut Behaviour) -> io::Result<()> {
        let written = self.append(behaviour.take_changed());
        let rewritten =
            if self.read_to < self.rewrite_at { Ok(()) } else { self.rewrite(behaviour) };
        self.file.unlock()?;
        written.and(rewritten)
    }

    /// Whether the open file still has its name.
    fn is_current(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(named) => Ok(named.ino() == self.file.metadata()?.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn append(&mut self, changed: Vec<TaskRecord>) -> io::Result<()> {
        let lines = lines(changed.into_iter().map(Line::Task))?;
        self.file.write_all(&lines)?;
        self.read_to += length(&lines);
        Ok(())
    }

    fn catch_up(&mut self, behaviour: &mut Behaviour) -> io::Result<()> {
        if self.file.metadata()?.len() <= self.read_to {
            return Ok(());
        }
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(self.read_to))?;
        self.file.read_to_string(&mut text)?;
        for line in text.lines() {
            match serde_json::from_str(line) {
                Ok(Line::SpentBefore(spent)) => behaviour.spent_before(spent),
                Ok(Line::Task(task)) => behaviour.restore(task),
                Err(error) => tracing::warn!(%error, "skipped a damaged line of the tasks file"),
            }
        }
        self.read_to += length(text.as_bytes());
        if !text.ends_with('\n') {
            // Its writer was killed. The next line must not continue this one.
            self.append_newline()?;
        }
        Ok(())
    }

    fn append_newline(&mut self) -> io::Result<()> {
        self.read_to += 1;
        self.file.write_all(b"\n")
    }

    /// Replaces the file by one without old tasks. The lock on the old file keeps other processes away meanwhile.
    fn rewrite(&mut self, behaviour: &mut Behaviour) -> io::Result<()> {
        let (spent_before, tasks) = behaviour.records();
        let tasks = tasks.into_iter().map(Line::Task);
        let lines = lines(std::iter::once(Line::SpentBefore(spent_before)).chain(tasks))?;
        let new = self.path.with_extension("new");
        let mut file = private().write(true).truncate(true).open(&new)?;
        file.write_all(&lines)?;
        fs::rename(&new, &self.path)?;
        self.file = open(&self.path)?;
        self.read_to = length(&lines);
        self.rewrite_at = REWRITE_AT.max(self.read_to.saturating_mul(2));
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    private().read(true).append(true).open(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

fn lines(lines: impl Iterator<Item = Line>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut bytes, &line)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
