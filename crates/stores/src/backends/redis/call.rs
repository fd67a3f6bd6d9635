//! One commit on the wire: the arguments of `commit.lua`, and its reply.

use std::borrow::Cow;

use redis::{Cmd, Value};

use crate::optimistic::{
    Commit, Conflict, RangeRead, RawKey, ReadSet, ScanRange, VersionedRow, Write,
};

use super::layout::{KeyNames, LONGEST_DAYS, TableForm};

/// A call of the script.
pub(super) struct CommitCall<'c> {
    pub(super) reads: &'c ReadSet,
    /// `None`: the script only compares.
    pub(super) commit: Option<&'c Commit>,
    pub(super) seq: CallSeq,
}

/// The sequence number of a call, and what the gateway knows about earlier ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallSeq {
    /// Zero for a call that only compares.
    pub(super) number: u64,
    /// The last number the server is known to have recorded.
    pub(super) acknowledged: u64,
    /// This call may have been sent before.
    pub(super) resent: bool,
}

#[derive(Debug)]
pub(super) enum CommitReply {
    /// The read set is current, and the writes are stored.
    Done { count: u64, since: u64 },
    /// The read set is out of date; nothing was written.
    Stale { count: u64, since: u64, conflicts: Vec<Conflict> },
    /// An earlier copy of this call was refused.
    Refused,
    /// The server has lost commits that it acknowledged, or has other data.
    Lost,
}

/// Every so many commits of a gateway, the expiry of the indexes is extended. The expiry is longer than any gateway pauses.
const EXTEND_EVERY: u64 = 64;

// === arguments ===

impl CommitCall<'_> {
    /// Adds the script's keys and arguments to the command.
    pub(super) fn add_args(
        &self,
        names: &KeyNames,
        writer: u64,
        (incarnation, count): (&str, u64),
        cmd: &mut Cmd,
    ) {
        let seq = self.seq;
        cmd.arg(2).arg(names.meta()).arg(names.seq(writer));
        cmd.arg(incarnation).arg(count).arg(seq.number).arg(seq.acknowledged);
        cmd.arg(u8::from(seq.resent)).arg(u8::from(seq.number % EXTEND_EVERY == 1));
        self.add_rows(names, cmd);
        self.add_scans(names, cmd);
        if let Some(commit) = self.commit {
            add_writes(commit, names, cmd);
        }
    }

    fn add_rows(&self, names: &KeyNames, cmd: &mut Cmd) {
        let mut name = Vec::new();
        let rows = || self.reads.rows.iter().filter(|(key, _)| form(key).rows);
        let absent = || rows().filter(|(_, version)| version.is_none());
        let small = || rows().filter(|(key, version)| version.is_some() && !form(key).large);
        let large = || rows().filter(|(key, version)| version.is_some() && form(key).large);
        cmd.arg(absent().count());
        for (key, _) in absent() {
            cmd.arg(row_name(&mut name, names, key));
        }
        cmd.arg(small().count());
        for (key, _) in small() {
            cmd.arg(row_name(&mut name, names, key));
        }
        for (_, version) in small() {
            cmd.arg(version.as_ref().map_or(&[][..], |version| version));
        }
        cmd.arg(large().count());
        for (key, version) in large() {
            cmd.arg(row_name(&mut name, names, key));
            cmd.arg(version.as_ref().map_or(&[][..], |version| version));
        }
    }

    /// The rows of the read set in the order of the arguments. A row without a value is compared as a range of one key.
    fn rows(&self) -> Vec<&RawKey> {
        let rows = self.reads.rows.iter().filter(|(key, _)| form(key).rows);
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|(key, version)| {
            (version.is_some(), version.is_some() && form(key).large)
        });
        rows.into_iter().map(|(key, _)| key).collect()
    }

    /// The ranges of the read set.
    fn scans(&self) -> impl Iterator<Item = (Cow<'_, ScanRange>, Cow<'_, RangeRead>)> {
        let plain = self.reads.rows.iter().filter(|(key, _)| !form(key).rows);
        let ones = plain.map(|(key, version)| {
            let scan = ScanRange { least: key.clone(), most: key.clone(), falling: false };
            let keys = version.iter().map(|_| key.clone()).collect();
            (Cow::Owned(scan), Cow::Owned(RangeRead { until: None, keys, limit: 1 }))
        });
        let scans = self.reads.scans.iter();
        scans.map(|(scan, read)| (Cow::Borrowed(scan), Cow::Borrowed(read))).chain(ones)
    }

    fn add_scans(&self, names: &KeyNames, cmd: &mut Cmd) {
        cmd.arg(self.scans().count());
        for (scan, read) in self.scans() {
            let tag = scan.least[0];
            let (command, from, to) = if scan.falling {
                ("ZREVRANGEBYLEX", most(&scan), least(&scan.least))
            } else {
                ("ZRANGEBYLEX", least(&scan.least), most(&scan))
            };
            let last = read.until.as_ref().map_or_else(|| to.clone(), least);
            cmd.arg(names.index(tag))
                .arg(command)
                .arg(from)
                .arg(to)
                .arg(last)
                .arg(read.conflict_limit());
            cmd.arg(if form(&scan.least).rows { names.row_stem(tag) } else { &[] });
            cmd.arg(read.keys.len());
            for key in &read.keys {
                cmd.arg(&key[1..]);
            }
        }
    }
}

fn add_writes(commit: &Commit, names: &KeyNames, cmd: &mut Cmd) {
    let mut name = Vec::new();
    let mut row = Vec::new();
    let rows = || commit.writes.iter().filter(|(key, _)| form(key).rows);
    cmd.arg(rows().filter(|(_, write)| **write != Write::Delete).count());
    for (key, write) in rows() {
        if let Write::Put(bytes) = write {
            row.clear();
            row.extend_from_slice(&commit.version);
            row.extend_from_slice(bytes);
            cmd.arg(row_name(&mut name, names, key)).arg(form(key).seconds()).arg(&*row);
        }
    }
    cmd.arg(rows().filter(|(_, write)| **write == Write::Delete).count());
    for (key, _) in rows().filter(|(_, write)| **write == Write::Delete) {
        cmd.arg(row_name(&mut name, names, key));
    }
    add_indexes(commit, names, cmd);
}

/// The writes are sorted, so the members of one index are adjacent.
fn add_indexes(commit: &Commit, names: &KeyNames, cmd: &mut Cmd) {
    let indexed: Vec<_> = commit.writes.iter().filter(|(key, _)| form(key).index).collect();
    let tables: Vec<_> = indexed.chunk_by(|a, b| a.0[0] == b.0[0]).collect();
    cmd.arg(tables.len());
    for members in tables {
        cmd.arg(names.index(members[0].0[0])).arg(LONGEST_DAYS * 86_400);
        let gone = members.iter().filter(|(_, write)| **write == Write::Delete);
        let added = members.iter().filter(|(_, write)| **write != Write::Delete);
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

fn form(key: &RawKey) -> TableForm {
    TableForm::of(key[0])
}

/// The name of a row's key, written into the buffer.
fn row_name<'n>(name: &'n mut Vec<u8>, names: &KeyNames, key: &RawKey) -> &'n [u8] {
    name.clear();
    name.extend_from_slice(names.row_stem(key[0]));
    name.extend_from_slice(&key[1..]);
    name
}

/// An inclusive bound.
fn least(key: &RawKey) -> Vec<u8> {
    [b"[", &key[1..]].concat()
}

/// The upper bound of a range. One that ends in the next table ends with this one.
fn most(scan: &ScanRange) -> Vec<u8> {
    if scan.most[0] == scan.least[0] { least(&scan.most) } else { b"+".to_vec() }
}

// === reply ===

impl CommitCall<'_> {
    /// Reads the reply; `None` when it is malformed.
    pub(super) fn read_reply(&self, reply: Value) -> Option<CommitReply> {
        let Value::Array(parts) = reply else { return None };
        let mut parts = parts.into_iter();
        let word = bytes(parts.next()?)?;
        match word.as_slice() {
            b"lost" | b"late" => return Some(CommitReply::Lost),
            b"refused" => return Some(CommitReply::Refused),
            _ => {}
        }
        let count = int(parts.next()?)?;
        let since = std::str::from_utf8(&bytes(parts.next()?)?).ok()?.parse().ok()?;
        if word == b"done" {
            return Some(CommitReply::Done { count, since });
        }
        let mut conflicts = self.read_rows(parts.next()?)?;
        conflicts.extend(self.read_scans(parts.next()?)?);
        Some(CommitReply::Stale { count, since, conflicts })
    }

    fn read_rows(&self, reply: Value) -> Option<Vec<Conflict>> {
        let Value::Array(changed) = reply else { return None };
        let sent = self.rows();
        let read = |one| {
            let Value::Array(pair) = one else { return None };
            let [place, row] = <[Value; 2]>::try_from(pair).ok()?;
            let key: RawKey = (*sent.get(position(place)?)?).clone();
            let row: Option<Vec<u8>> = redis::from_redis_value(row).ok()?;
            let row = match row {
                Some(row) => Some(row_of(&row)?),
                None => None,
            };
            Some(Conflict::Row(key, row))
        };
        changed.into_iter().map(read).collect()
    }

    fn read_scans(&self, reply: Value) -> Option<Vec<Conflict>> {
        let Value::Array(changed) = reply else { return None };
        let sent: Vec<_> = self.scans().map(|(scan, _)| scan).collect();
        let read = |one| {
            let Value::Array(parts) = one else { return None };
            let [place, more, found] = <[Value; 3]>::try_from(parts).ok()?;
            let scan = sent.get(position(place)?)?.as_ref().clone();
            let Value::Array(found) = found else { return None };
            let rows = read_members(&scan, found)?;
            Some(Conflict::Range { scan, rows, more: int(more)? == 1 })
        };
        changed.into_iter().map(read).collect()
    }
}

fn read_members(scan: &ScanRange, found: Vec<Value>) -> Option<Vec<(RawKey, VersionedRow)>> {
    let tag = scan.least[0];
    let has_rows = TableForm::of(tag).rows;
    let mut rows = Vec::with_capacity(found.len() / 2);
    let mut found = found.into_iter();
    while let (Some(member), Some(row)) = (found.next(), found.next()) {
        let key: RawKey = [&[tag], bytes(member)?.as_slice()].concat().into();
        let row = if has_rows { row_of(&bytes(row)?)? } else { VersionedRow::key_only() };
        rows.push((key, row));
    }
    Some(rows)
}

fn row_of(bytes: &[u8]) -> Option<VersionedRow> {
    let (version, bytes) = bytes.split_first_chunk()?;
    Some(VersionedRow { version: *version, bytes: bytes.into() })
}

fn position(place: Value) -> Option<usize> {
    usize::try_from(int(place)?).ok()?.checked_sub(1)
}

fn int(value: Value) -> Option<u64> {
    redis::from_redis_value(value).ok()
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    redis::from_redis_value(value).ok()
}
