//! Writes the results of commands to stdout; logs and errors go to stderr.

use std::{
    fmt,
    io::{self, Write as _},
};

use comfy_table::{Row, Table, presets};
use serde::Serialize;

use crate::exit::{Exit, Failure};

pub fn line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    write(format!("{text}\n").as_bytes())
}

/// A reader that closes stdout, as `| head` does, has read enough; that is not an error.
pub fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, format!("failed to write to stdout: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Indented JSON.
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::of(Exit::Failed))?;
    line(format_args!("{text}"))
}

/// An empty table with these headings and without rules, so that it is easy to cut and grep.
pub fn table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headings);
    table
}

pub fn rows<R: Into<Row>>(
    headings: impl Into<Row>,
    rows: impl IntoIterator<Item = R>,
) -> Result<(), Failure> {
    let mut table = table([]);
    table.set_header(headings).add_rows(rows);
    line(format_args!("{}", table.trim_fmt()))
}
