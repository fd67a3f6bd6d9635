//! Where the answers go: stdout, or a file that a later run continues.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::ids::hash;
use crate::exit::{Exit, Failure};

pub(super) struct Answers {
    sink: Box<dyn Write + Send>,
    name: String,
    served: ServedIds,
}

/// The ids of lines that have their token. Hashes, so that a long batch takes 16 bytes for each.
#[derive(Default)]
struct ServedIds(HashSet<u128>);

/// What of an answer says that its line is finished.
#[derive(Deserialize)]
struct Finished {
    id: Option<String>,
    status: u16,
}

impl Answers {
    /// On stdout, or in a file whose finished lines are kept.
    pub(super) fn open(out: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = out else {
            let (sink, name) = (Box::new(io::stdout()), "stdout".to_owned());
            return Ok(Self { sink, name, served: ServedIds::default() });
        };
        let name = path.display().to_string();
        let (file, served) = continue_file(path).map_err(|error| {
            Failure::new(Exit::Usage, format!("--out: cannot write {name}: {error}"))
        })?;
        Ok(Self { sink: Box::new(file), name, served })
    }

    /// Whether an earlier run wrote the token of this line.
    pub(super) fn has(&self, id: &str) -> bool {
        self.served.0.contains(&hash(id))
    }

    /// Writes a line at once, so that nothing is lost when this process is killed. `false` when the reader has closed the pipe.
    pub(super) fn write(&mut self, line: &str) -> Result<bool, Failure> {
        match self.sink.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.sink.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => {
                let what = format!("cannot write to {}: {error}", self.name);
                Err(Failure::new(Exit::Failed, what))
            }
        }
    }
}

/// Opens the file for appending. Answers without a token, and a line that a kill cut off, are removed: their lines are asked
/// for again, and then there is one answer for each.
fn continue_file(path: &Path) -> io::Result<(File, ServedIds)> {
    let mut served = ServedIds::default();
    let append = || OpenOptions::new().append(true).create(true).open(path);
    let running = append()?;
    if running.try_lock().is_err() {
        return Err(io::Error::other("another batch is writing to it"));
    }
    let kept = PathBuf::from(format!("{}.kept", path.display()));
    let mut removed = false;
    let mut copy = BufWriter::new(File::create(&kept)?);
    let mut reader = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if served.add(&line) {
            copy.write_all(&line)?;
        } else {
            removed = true;
        }
        line.clear();
    }
    if !removed {
        fs::remove_file(kept)?;
        return Ok((running, served));
    }
    copy.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(kept, path)?;
    let continued = append()?;
    continued.try_lock().map_err(io::Error::from)?;
    Ok((continued, served))
}

// === impl ServedIds ===

impl ServedIds {
    /// Whether the line is the complete answer of a line that has its token.
    fn add(&mut self, line: &[u8]) -> bool {
        let answer = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
        let Some(Finished { id: Some(id), status: 200 }) = answer else { return false };
        self.0.insert(hash(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: &str, status: u16) -> String {
        format!("{{\"line\":1,\"id\":\"{id}\",\"status\":{status}}}")
    }

    #[test]
    fn a_file_is_continued_with_one_answer_for_each_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.ndjson");
        let lines = [
            answer("a", 200),
            answer("b", 502),
            answer("a", 200),
            answer("c", 200),
            "{\"id\":\"d\",\"sta".into(),
        ];
        fs::write(&path, lines.join("\n")).unwrap();
        let mut answers = Answers::open(Some(&path)).unwrap();
        assert!(answers.has("a") && answers.has("c") && !answers.has("b") && !answers.has("d"));
        assert!(Answers::open(Some(&path)).is_err(), "another batch is writing to it");
        assert!(answers.write(&answer("b", 200)).unwrap());
        drop(answers);
        let expected = [answer("a", 200), answer("c", 200), answer("b", 200), String::new()];
        assert_eq!(fs::read_to_string(&path).unwrap(), expected.join("\n"));
        assert!(Answers::open(Some(&path)).unwrap().has("b"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no file is left behind");
    }
}
