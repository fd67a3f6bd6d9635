//! What commands print. Everything goes through here: stdout is for what was asked, nothing else.

use std::{
    fmt,
    io::{self, Write as _},
};

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Prints one line.
pub fn line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints a value as indented JSON.
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::of(Exit::Failed))?;
    line(format_args!("{text}"))
}

/// An empty table with these headings, without lines: easy to cut and grep.
pub fn table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headings);
    table
}
