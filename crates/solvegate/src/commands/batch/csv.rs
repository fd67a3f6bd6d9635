//! Reads CSV (RFC 4180) with a header line as claims.

use std::{
    collections::BTreeSet,
    io::{self, BufRead},
    path::Path,
};

use serde_json::{Map, Value, json};

use super::input::{InputLine, unreadable, with_image};
use crate::exit::{Exit, Failure};

/// Columns that are members of a claim; every other one is a parameter of its kind.
const MEMBERS: [&str; 11] = [
    "id",
    "kind",
    "method",
    "sitekey",
    "pageurl",
    "image",
    "image_file",
    "project",
    "callback_url",
    "deadline_s",
    "fresh",
];

/// Records with the number of the line they begin on.
struct Records<R> {
    reader: R,
    line: u64,
}

/// As much as the gateway takes, and some more for quotes.
const MAX_RECORD: usize = 4 * 1024 * 1024;

/// Sends the claims of a file until it ends or nobody wants them.
pub(super) fn read(
    reader: impl BufRead,
    path: &Path,
    send: impl Fn(Result<InputLine, Failure>) -> bool,
) {
    let mut records = Records { reader, line: 1 };
    let columns = match records.next().map_err(|error| unreadable(path, &error)) {
        Ok(None) => return,
        Ok(Some((_, columns))) => check_header(columns, path),
        Err(failure) => Err(failure),
    };
    let columns = match columns {
        Ok(columns) => columns,
        Err(failure) => {
            send(Err(failure));
            return;
        }
    };
    loop {
        let line = match records.next() {
            Ok(None) => return,
            Ok(Some((number, cells))) => {
                let claim = claim(&columns, cells).and_then(with_image);
                Ok(InputLine { number, claim })
            }
            Err(error) => Err(unreadable(path, &error)),
        };
        let is_last = line.is_err();
        if !send(line) || is_last {
            return;
        }
    }
}

fn check_header(columns: Vec<String>, path: &Path) -> Result<Vec<String>, Failure> {
    let columns: Vec<_> = columns.into_iter().map(|name| name.trim().to_owned()).collect();
    let usage = |what: &str| Failure::new(Exit::Usage, format!("{}: {what}", path.display()));
    let different: BTreeSet<_> = columns.iter().collect();
    if different.len() < columns.len() {
        return Err(usage("two columns of the header have the same name"));
    }
    match ["id", "kind"].into_iter().find(|name| !columns.iter().any(|column| column == name)) {
        Some(name) => Err(usage(&format!(
            "the first line is neither JSON nor a CSV header with the columns id and kind: {name} is missing"
        ))),
        None => Ok(columns),
    }
}

/// A record as the members of a claim. Empty cells are left out.
fn claim(columns: &[String], cells: Vec<String>) -> Result<Map<String, Value>, String> {
    if cells.len() != columns.len() {
        let (has, wants) = (cells.len(), columns.len());
        return Err(format!("the line has {has} cells, but the header has {wants}"));
    }
    let (mut claim, mut params) = (Map::new(), Map::new());
    for (column, cell) in columns.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
        if !MEMBERS.contains(&column.as_str()) {
            params.insert(column.clone(), json!(cell));
            continue;
        }
        let value = match column.as_str() {
            "deadline_s" => json!(cell.parse::<u64>().map_err(|_| {
                format!("`deadline_s` is {cell:?}, which is not a whole number of seconds")
            })?),
            "fresh" => json!(cell.parse::<bool>().map_err(|_| {
                format!("`fresh` is {cell:?}, which is neither true nor false")
            })?),
            _ => json!(cell),
        };
        claim.insert(column.clone(), value);
    }
    if !params.is_empty() {
        claim.insert("params".into(), params.into());
    }
    Ok(claim)
}

// === impl Records ===

impl<R: BufRead> Records<R> {
    /// The next record that is not blank, and the line it begins on.
    fn next(&mut self) -> io::Result<Option<(u64, Vec<String>)>> {
        loop {
            let number = self.line;
            let Some(text) = self.record()? else { return Ok(None) };
            let text = String::from_utf8(text).map_err(io::Error::other)?;
            if !text.trim().is_empty() {
                return Ok(Some((number, cells(&text))));
            }
        }
    }

    /// The text up to a line break that is not quoted.
    fn record(&mut self) -> io::Result<Option<Vec<u8>>> {
        let (mut text, mut is_quoted) = (Vec::new(), false);
        loop {
            let before = text.len();
            if self.reader.read_until(b'\n', &mut text)? == 0 {
                return Ok((!text.is_empty()).then_some(text));
            }
            if text[before..].ends_with(b"\n") {
                self.line += 1;
            }
            for byte in &text[before..] {
                is_quoted ^= *byte == b'"';
            }
            if !is_quoted {
                return Ok(Some(text));
            }
            if text.len() > MAX_RECORD {
                let what = format!("line {}: a quoted cell does not end", self.line);
                return Err(io::Error::other(what));
            }
        }
    }
}

/// Splits a record at commas that are not quoted.
fn cells(record: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = record.trim_end_matches(['\r', '\n']).chars().peekable();
    while let Some(char) = chars.next() {
        let cell = all.last_mut().expect("there is always a cell");
        match char {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(String::new()),
            other => cell.push(other),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn read_all(text: &str) -> Vec<String> {
        let all = RefCell::new(Vec::new());
        read(text.as_bytes(), Path::new("a.csv"), |line| {
            all.borrow_mut().push(match line {
                Ok(InputLine { number, claim: Ok(claim) }) => format!("{number} {}", json!(claim)),
                Ok(InputLine { number, claim: Err(why) }) => format!("{number} ! {why}"),
                Err(failure) => failure.to_string(),
            });
            true
        });
        all.into_inner()
    }

    #[test]
    fn columns_become_members_and_the_others_parameters() {
        let text = "id, kind,sitekey,pageurl,action,deadline_s,fresh\r\n\
                    a,recaptcha_v3,6Le,https://shop.example.com/,login,30,true\r\n\
                    \r\n\
                    b,turnstile,0x,\"https://shop.example.com/?a=1,2\",,,\n";
        let expected = [
            r#"2 {"id":"a","kind":"recaptcha_v3","sitekey":"6Le","pageurl":"https://shop.example.com/","deadline_s":30,"fresh":true,"params":{"action":"login"}}"#,
            r#"4 {"id":"b","kind":"turnstile","sitekey":"0x","pageurl":"https://shop.example.com/?a=1,2"}"#,
        ];
        assert_eq!(read_all(text), expected);
    }

    #[test]
    fn quotes_hold_commas_quotes_and_line_breaks() {
        let text = "id,kind,textcaptcha\n\"a\",text,\"say \"\"two\"\",\nor three\"\nb,text,last";
        let expected = [
            r#"2 {"id":"a","kind":"text","params":{"textcaptcha":"say \"two\",\nor three"}}"#,
            r#"4 {"id":"b","kind":"text","params":{"textcaptcha":"last"}}"#,
        ];
        assert_eq!(read_all(text), expected);
    }

    #[test]
    fn a_line_that_cannot_be_used_says_why_and_a_bad_header_ends_it() {
        let text = "id,kind,deadline_s\na,text\nb,text,soon\n";
        let expected = [
            "2 ! the line has 2 cells, but the header has 3",
            "3 ! `deadline_s` is \"soon\", which is not a whole number of seconds",
        ];
        assert_eq!(read_all(text), expected);
        let header =
            "a.csv: the first line is neither JSON nor a CSV header with the columns id and kind";
        assert_eq!(read_all("name,kind\n"), [format!("{header}: id is missing")]);
        assert_eq!(
            read_all("id,kind,id\n"),
            ["a.csv: two columns of the header have the same name"]
        );
        assert!(read_all("").is_empty());
    }
}
