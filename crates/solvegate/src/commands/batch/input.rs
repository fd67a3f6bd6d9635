//! The lines of the input file or of stdin, read by a thread of their own, because reading blocks.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::csv;
use crate::exit::{Exit, Failure};

/// A line of the input as the members of a claim, or why it is none.
pub(super) struct InputLine {
    /// Its number in the file.
    pub(super) number: u64,
    pub(super) claim: Result<Map<String, Value>, String>,
}

pub(super) struct Input {
    lines: mpsc::Receiver<Result<InputLine, Failure>>,
    /// The number of lines, if the input is a file.
    pub(super) total: Option<u64>,
}

/// Lines that are read ahead.
const READ_AHEAD: usize = 16;
/// The gateway's limit on a line.
const MAX_LINE: u64 = 2 * 1024 * 1024;

impl Input {
    /// Opens the input and begins to read.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let (sender, lines) = mpsc::channel(READ_AHEAD);
        let mut total = None;
        let mut reader: Box<dyn BufRead + Send> = if path == Path::new("-") {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let file = File::open(path).map_err(|error| unreadable(path, &error))?;
            total = Some(count_lines(path).map_err(|error| unreadable(path, &error))?);
            Box::new(BufReader::new(file))
        };
        let is_csv = is_csv(&mut *reader).map_err(|error| unreadable(path, &error))?;
        if is_csv {
            total = total.map(|lines| lines.saturating_sub(1));
        }
        let path = path.to_owned();
        thread::spawn(move || {
            // The other end is gone when the command ends early; then nobody needs the rest.
            let send = |line| sender.blocking_send(line).is_ok();
            if is_csv { csv::read(reader, &path, send) } else { read_json(reader, &path, send) }
        });
        Ok(Self { lines, total })
    }

    pub(super) async fn next(&mut self) -> Option<Result<InputLine, Failure>> {
        self.lines.recv().await
    }
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Usage, format!("cannot read {}: {error}", path.display()))
}

/// JSON lines begin with `{`; a header of CSV does not.
fn is_csv(reader: &mut dyn BufRead) -> io::Result<bool> {
    if reader.fill_buf()?.starts_with(b"\xEF\xBB\xBF") {
        reader.consume(3);
    }
    // A file that begins with more blank space than the buffer holds is none of ours.
    let first = reader.fill_buf()?.iter().find(|byte| !byte.is_ascii_whitespace());
    Ok(first.is_some_and(|byte| *byte != b'{'))
}

/// For the progress bar: lines that are not blank. Quoted line breaks of CSV make it a little too high.
fn count_lines(path: &Path) -> io::Result<u64> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut count, mut is_blank) = (0, true);
    loop {
        let buffer = reader.fill_buf()?;
        let length = buffer.len();
        if length == 0 {
            return Ok(count + u64::from(!is_blank));
        }
        for byte in buffer {
            if *byte == b'\n' {
                count += u64::from(!std::mem::replace(&mut is_blank, true));
            } else if !byte.is_ascii_whitespace() {
                is_blank = false;
            }
        }
        reader.consume(length);
    }
}

fn read_json(
    mut reader: Box<dyn BufRead + Send>,
    path: &Path,
    send: impl Fn(Result<InputLine, Failure>) -> bool,
) {
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let line = match (&mut reader).take(MAX_LINE).read_until(b'\n', &mut text) {
            Ok(0) => return,
            Ok(_) if text.len() as u64 == MAX_LINE && !text.ends_with(b"\n") => {
                let rest = reader.skip_until(b'\n').map_err(|error| unreadable(path, &error));
                rest.map(|_| Some(Err(format!("the line is longer than {MAX_LINE} bytes"))))
            }
            Ok(_) if text.trim_ascii().is_empty() => Ok(None),
            Ok(_) => Ok(Some(parse(&text))),
            Err(error) => Err(unreadable(path, &error)),
        };
        let is_last = line.is_err();
        let Some(line) = line.transpose() else { continue };
        let line = line.map(|claim| InputLine { number, claim: claim.and_then(with_image) });
        if !send(line) || is_last {
            return;
        }
    }
}

fn parse(text: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("the line is not a JSON object".into()),
        Err(error) => Err(format!("the line is not JSON: {error}")),
    }
}

/// Replaces `image_file` by the picture in that file.
pub(super) fn with_image(mut claim: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let Some(file) = claim.remove("image_file") else { return Ok(claim) };
    let file = file.as_str().map(PathBuf::from).ok_or("`image_file` is not the name of a file")?;
    let picture =
        std::fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if claim.insert("image".into(), json!(STANDARD.encode(picture))).is_some() {
        return Err("`image` and `image_file` are both given".into());
    }
    Ok(claim)
}
