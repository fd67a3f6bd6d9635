//! A commit on the wire: what `commit.lua` is asked, and what it answers.

use std::borrow::Cow;

use redis::{Cmd, Value};

use crate::remote::{Commit, Correction, Key, Row, Span, Write, draft::Found, plain};

use super::layout::{Form, LONGEST_DAYS, Names};

/// One commit on its way to the script.
pub(super) struct Call<'c> {
    pub(super) commit: &'c Commit,
    pub(super) turn: Turn,
}

/// Whose turn it is, and what the gateway knows of earlier ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// Zero for a look.
    pub(super) number: u64,
    /// The last one the server is known to have.
    pub(super) acknowledged: u64,
    /// This one was sent before.
    pub(super) again: bool,
}

/// What the server answered.
#[derive(Debug)]
pub(super) enum Reply {
    /// Everything was as assumed, and is written.
    Done { count: u64, since: u64 },
    /// Something was not as assumed; nothing was written.
    Stale { count: u64, since: u64, corrections: Vec<Correction> },
    /// An earlier copy of this turn was refused.
    Refused,
    /// The server has forgotten what it acknowledged, or its data is another.
    Lost,
}

/// The lives of sets are lengthened with every so many commits of a gateway; they are longer than any gateway pauses.
const LENGTHENED: u64 = 64;

// === asking ===

impl Call<'_> {
    /// Adds the script's keys and arguments to the command.
    pub(super) fn ask(
        &self,
        names: &Names,
        writer: u64,
        (incarnation, seen): (&str, u64),
        cmd: &mut Cmd,
    ) {
        let turn = self.turn;
        cmd.arg(2).arg(names.head()).arg(names.turn(writer));
        cmd.arg(incarnation).arg(seen).arg(turn.number).arg(turn.acknowledged);
        cmd.arg(u8::from(turn.again)).arg(u8::from(turn.number % LENGTHENED == 1));
        self.ask_rows(names, cmd);
        self.ask_spans(names, cmd);
        if turn.number > 0 {
            self.ask_writes(names, cmd);
        }
    }

    fn ask_rows(&self, names: &Names, cmd: &mut Cmd) {
        let mut name = Vec::new();
        let rows = || self.commit.assumed.rows.iter().filter(|(key, _)| form(key).rows);
        let absent = || rows().filter(|(_, stamp)| stamp.is_none());
        let small = || rows().filter(|(key, stamp)| stamp.is_some() && !form(key).large);
        let large = || rows().filter(|(key, stamp)| stamp.is_some() && form(key).large);
        cmd.arg(absent().count());
        for (key, _) in absent() {
            cmd.arg(row_name(&mut name, names, key));
        }
        cmd.arg(small().count());
        for (key, _) in small() {
            cmd.arg(row_name(&mut name, names, key));
        }
        for (_, stamp) in small() {
            cmd.arg(stamp.as_ref().map_or(&[][..], |stamp| stamp));
        }
        cmd.arg(large().count());
        for (key, stamp) in large() {
            cmd.arg(row_name(&mut name, names, key));
            cmd.arg(stamp.as_ref().map_or(&[][..], |stamp| stamp));
        }
    }

    /// The rows assumed, in the order they are asked in. Whether a row without a value is there is asked as a range of one.
    fn rows(&self) -> Vec<&Key> {
        let rows = self.commit.assumed.rows.iter().filter(|(key, _)| form(key).rows);
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|(key, stamp)| (stamp.is_some(), stamp.is_some() && form(key).large));
        rows.into_iter().map(|(key, _)| key).collect()
    }

    /// The ranges assumed.
    fn spans(&self) -> impl Iterator<Item = (Cow<'_, Span>, Cow<'_, Found>)> {
        let plain = self.commit.assumed.rows.iter().filter(|(key, _)| !form(key).rows);
        let ones = plain.map(|(key, stamp)| {
            let span = Span { least: key.clone(), most: key.clone(), falling: false };
            let keys = stamp.iter().map(|_| key.clone()).collect();
            (Cow::Owned(span), Cow::Owned(Found { until: None, keys, wanted: 1 }))
        });
        let spans = self.commit.assumed.spans.iter();
        spans.map(|(span, found)| (Cow::Borrowed(span), Cow::Borrowed(found))).chain(ones)
    }

    fn ask_spans(&self, names: &Names, cmd: &mut Cmd) {
        cmd.arg(self.spans().count());
        for (span, found) in self.spans() {
            let tag = span.least[0];
            let (command, from, to) = if span.falling {
                ("ZREVRANGEBYLEX", most(&span), least(&span.least))
            } else {
                ("ZRANGEBYLEX", least(&span.least), most(&span))
            };
            let last = found.until.as_ref().map_or_else(|| to.clone(), least);
            cmd.arg(names.index(tag)).arg(command).arg(from).arg(to).arg(last).arg(found.to_tell());
            cmd.arg(if form(&span.least).rows { names.row_stem(tag) } else { &[] });
            cmd.arg(found.keys.len());
            for key in &found.keys {
                cmd.arg(&key[1..]);
            }
        }
    }

    fn ask_writes(&self, names: &Names, cmd: &mut Cmd) {
        let mut name = Vec::new();
        let mut row = Vec::new();
        let rows = || self.commit.writes.iter().filter(|(key, _)| form(key).rows);
        cmd.arg(rows().filter(|(_, write)| **write != Write::Gone).count());
        for (key, write) in rows() {
            if let Write::Put(bytes) = write {
                row.clear();
                row.extend_from_slice(&self.commit.stamp);
                row.extend_from_slice(bytes);
                cmd.arg(row_name(&mut name, names, key)).arg(form(key).seconds()).arg(&*row);
            }
        }
        cmd.arg(rows().filter(|(_, write)| **write == Write::Gone).count());
        for (key, _) in rows().filter(|(_, write)| **write == Write::Gone) {
            cmd.arg(row_name(&mut name, names, key));
        }
        self.ask_indexes(names, cmd);
    }

    /// Members of a table are next to one another among the writes.
    fn ask_indexes(&self, names: &Names, cmd: &mut Cmd) {
        let indexed: Vec<_> =
            self.commit.writes.iter().filter(|(key, _)| form(key).index).collect();
        let tables: Vec<_> = indexed.chunk_by(|a, b| a.0[0] == b.0[0]).collect();
        cmd.arg(tables.len());
        for members in tables {
            cmd.arg(names.index(members[0].0[0])).arg(LONGEST_DAYS * 86_400);
            let gone = members.iter().filter(|(_, write)| **write == Write::Gone);
            let added = members.iter().filter(|(_, write)| **write != Write::Gone);
            cmd.arg(added.clone().count());
            for (key, _) in added {
                cmd.arg(b"0").arg(&key[1..]);
            }
            cmd.arg(gone.clone().count());
            for (key, _) in gone {
                cmd.arg(&key[1..]);
            }
        }
    }
}

fn form(key: &Key) -> Form {
    Form::of(key[0])
}

/// The name of a row's key, in a buffer.
fn row_name<'n>(name: &'n mut Vec<u8>, names: &Names, key: &Key) -> &'n [u8] {
    name.clear();
    name.extend_from_slice(names.row_stem(key[0]));
    name.extend_from_slice(&key[1..]);
    name
}

/// A bound that includes the key.
fn least(key: &Key) -> Vec<u8> {
    [b"[", &key[1..]].concat()
}

/// The upper bound of a range; one that ends in the next table ends with this one.
fn most(span: &Span) -> Vec<u8> {
    if span.most[0] == span.least[0] { least(&span.most) } else { b"+".to_vec() }
}

// === answering ===

impl Call<'_> {
    /// Reads the answer; `None` when it is none.
    pub(super) fn read(&self, answer: Value) -> Option<Reply> {
        let Value::Array(parts) = answer else { return None };
        let mut parts = parts.into_iter();
        let word = bytes(parts.next()?)?;
        match word.as_slice() {
            b"lost" | b"late" => return Some(Reply::Lost),
            b"refused" => return Some(Reply::Refused),
            _ => {}
        }
        let count = int(parts.next()?)?;
        let since = std::str::from_utf8(&bytes(parts.next()?)?).ok()?.parse().ok()?;
        if word == b"done" {
            return Some(Reply::Done { count, since });
        }
        let mut corrections = self.read_rows(parts.next()?)?;
        corrections.extend(self.read_spans(parts.next()?)?);
        Some(Reply::Stale { count, since, corrections })
    }

    fn read_rows(&self, answer: Value) -> Option<Vec<Correction>> {
        let Value::Array(wrong) = answer else { return None };
        let asked = self.rows();
        let read = |one| {
            let Value::Array(pair) = one else { return None };
            let [place, row] = <[Value; 2]>::try_from(pair).ok()?;
            let key: Key = (*asked.get(place_of(place)?)?).clone();
            let row: Option<Vec<u8>> = redis::from_redis_value(row).ok()?;
            let row = match row {
                Some(row) => Some(row_of(&row)?),
                None => None,
            };
            Some(Correction::Row(key, row))
        };
        wrong.into_iter().map(read).collect()
    }

    fn read_spans(&self, answer: Value) -> Option<Vec<Correction>> {
        let Value::Array(wrong) = answer else { return None };
        let asked: Vec<_> = self.spans().map(|(span, _)| span).collect();
        let read = |one| {
            let Value::Array(parts) = one else { return None };
            let [place, more, found] = <[Value; 3]>::try_from(parts).ok()?;
            let span = asked.get(place_of(place)?)?.as_ref().clone();
            let Value::Array(found) = found else { return None };
            let rows = read_members(&span, found)?;
            Some(Correction::Span { span, rows, more: int(more)? == 1 })
        };
        wrong.into_iter().map(read).collect()
    }
}

fn read_members(span: &Span, found: Vec<Value>) -> Option<Vec<(Key, Row)>> {
    let tag = span.least[0];
    let has_rows = Form::of(tag).rows;
    let mut rows = Vec::with_capacity(found.len() / 2);
    let mut found = found.into_iter();
    while let (Some(member), Some(row)) = (found.next(), found.next()) {
        let key: Key = [&[tag], bytes(member)?.as_slice()].concat().into();
        let row = if has_rows { row_of(&bytes(row)?)? } else { plain() };
        rows.push((key, row));
    }
    Some(rows)
}

fn row_of(bytes: &[u8]) -> Option<Row> {
    let (stamp, bytes) = bytes.split_first_chunk()?;
    Some(Row { stamp: *stamp, bytes: bytes.into() })
}

fn place_of(place: Value) -> Option<usize> {
    usize::try_from(int(place)?).ok()?.checked_sub(1)
}

fn int(value: Value) -> Option<u64> {
    redis::from_redis_value(value).ok()
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    redis::from_redis_value(value).ok()
}
