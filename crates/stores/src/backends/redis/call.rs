//! One commit on the wire: the arguments of `commit.lua`, and its reply.

use std::borrow::Cow;

use redis::{Cmd, FromRedisValue, Value};

use crate::optimistic::{
    Commit, CommitOutcome, Conflict, RangeRead, RawKey, ReadSet, ScanRange, VersionedRow, Write,
};

use super::layout::{KeyNames, LONGEST_DAYS, TableForm};

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
    Conflict { count: u64, since: u64, conflicts: Vec<Conflict> },
    /// An earlier copy of this call found a conflict, and its reply is lost. Nothing was written.
    ConflictBefore,
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
        let [absent, small, large] = self.rows();
        cmd.arg(absent.len());
        for (key, _) in absent {
            cmd.arg(row_name(names, key));
        }
        cmd.arg(small.len());
        for (key, _) in &small {
            cmd.arg(row_name(names, key));
        }
        for (_, version) in small {
            cmd.arg(version);
        }
        cmd.arg(large.len());
        for (key, version) in large {
            cmd.arg(row_name(names, key)).arg(version);
        }
    }

    /// What the decisions read, and the end of the ledger that the pages follow.
    fn read_sets(&self) -> impl Iterator<Item = &ReadSet> {
        std::iter::once(self.reads).chain(self.commit.map(|commit| &commit.ledger_end))
    }

    /// The rows of the read set with their versions: those that must not exist, small ones, and large ones. A row without a value
    /// is compared as a range of one key.
    fn rows(&self) -> [Vec<(&RawKey, &[u8])>; 3] {
        let mut groups = [const { Vec::new() }; 3];
        let rows = self.read_sets().flat_map(|reads| &reads.rows);
        for (key, version) in rows.filter(|(key, _)| form(key).rows) {
            match version {
                None => groups[0].push((key, &[][..])),
                Some(version) => groups[1 + usize::from(form(key).large)].push((key, version)),
            }
        }
        groups
    }

    fn scans(&self) -> impl Iterator<Item = (Cow<'_, ScanRange>, Cow<'_, RangeRead>)> {
        let rows = self.read_sets().flat_map(|reads| &reads.rows);
        let plain = rows.filter(|(key, _)| !form(key).rows);
        let ones = plain.map(|(key, version)| {
            let scan = ScanRange { least: key.clone(), most: key.clone(), falling: false };
            let keys = version.iter().map(|_| key.clone()).collect();
            (Cow::Owned(scan), Cow::Owned(RangeRead { keys, limit: 1, ..RangeRead::default() }))
        });
        let scans = self.read_sets().flat_map(|reads| &reads.scans);
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
    let rows = commit.writes.iter().filter(|(key, _)| form(key).rows);
    let (deletes, puts): (Vec<_>, Vec<_>) = rows.partition(|(_, write)| **write == Write::Delete);
    cmd.arg(puts.len());
    for (key, write) in puts {
        if let Write::Put(bytes) = write {
            let row = [&commit.version, &**bytes].concat();
            cmd.arg(row_name(names, key)).arg(form(key).seconds()).arg(row);
        }
    }
    cmd.arg(deletes.len());
    for (key, _) in deletes {
        cmd.arg(row_name(names, key));
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
        let (gone, added): (Vec<_>, Vec<_>) =
            members.iter().partition(|(_, write)| **write == Write::Delete);
        cmd.arg(added.len());
        for (key, _) in added {
            cmd.arg(b"0").arg(&key[1..]);
        }
        cmd.arg(gone.len());
        for (key, _) in gone {
            cmd.arg(&key[1..]);
        }
    }
}

fn form(key: &RawKey) -> TableForm {
    TableForm::of(key[0])
}

fn row_name(names: &KeyNames, key: &RawKey) -> Vec<u8> {
    [names.row_stem(key[0]), &key[1..]].concat()
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
        let mut parts = read::<Vec<Value>>(reply)?.into_iter();
        let word: String = read(parts.next()?)?;
        match word.as_str() {
            // "late": the server has recorded a higher number of this writer. The writer sends one call at a time, with rising
            // numbers, so this is either a delayed copy, whose reply nobody reads, or the recorded number is from other data
            // than this gateway knows. Opening the data again discards that number.
            "lost" | "late" => return Some(CommitReply::Lost),
            "conflict before" => return Some(CommitReply::ConflictBefore),
            _ => {}
        }
        let (count, since) = (read(parts.next()?)?, read(parts.next()?)?);
        if word == "done" {
            return Some(CommitReply::Done { count, since });
        }
        let mut conflicts = self.read_rows(read(parts.next()?)?)?;
        conflicts.extend(self.read_scans(read(parts.next()?)?)?);
        Some(CommitReply::Conflict { count, since, conflicts })
    }

    fn read_rows(&self, changed: Vec<Value>) -> Option<Vec<Conflict>> {
        let sent = self.rows().concat();
        let read_row = |one| {
            let (position, row): (usize, Option<Vec<u8>>) = read(one)?;
            let (key, _) = *sent.get(position.checked_sub(1)?)?;
            let row = match row {
                Some(row) => Some(row_of(&row)?),
                None => None,
            };
            Some(Conflict::Row(key.clone(), row))
        };
        changed.into_iter().map(read_row).collect()
    }

    fn read_scans(&self, changed: Vec<Value>) -> Option<Vec<Conflict>> {
        let sent: Vec<_> = self.scans().map(|(scan, _)| scan).collect();
        let read_scan = |one| {
            let (position, more, found): (usize, u8, Vec<Vec<u8>>) = read(one)?;
            let scan = sent.get(position.checked_sub(1)?)?.as_ref().clone();
            let rows = read_members(scan.least[0], &found)?;
            Some(Conflict::Range { scan, rows, more: more == 1 })
        };
        changed.into_iter().map(read_scan).collect()
    }
}

impl From<CommitReply> for CommitOutcome {
    fn from(reply: CommitReply) -> Self {
        match reply {
            CommitReply::Done { .. } => Self::Accepted,
            CommitReply::Conflict { conflicts, .. } => Self::Conflicts(conflicts),
            CommitReply::ConflictBefore => Self::Retry,
            CommitReply::Lost => Self::DataLost,
        }
    }
}

/// Members of an index, each followed by its row.
fn read_members(tag: u8, found: &[Vec<u8>]) -> Option<Vec<(RawKey, VersionedRow)>> {
    let read_member = |[member, row]: &[Vec<u8>; 2]| {
        let row = if TableForm::of(tag).rows { row_of(row)? } else { VersionedRow::key_only() };
        Some(([&[tag], member.as_slice()].concat().into(), row))
    };
    found.as_chunks().0.iter().map(read_member).collect()
}

fn row_of(bytes: &[u8]) -> Option<VersionedRow> {
    let (version, bytes) = bytes.split_first_chunk()?;
    Some(VersionedRow { version: *version, bytes: bytes.into() })
}

fn read<T: FromRedisValue>(value: Value) -> Option<T> {
    redis::from_redis_value(value).ok()
}
