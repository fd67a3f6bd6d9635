//! The row of `head`: how many commits there were, and the incarnation of the data. A server whose row is behind what this gateway
//! has seen, or which lacks its last commit, has lost commits: a replica without them took over, or a backup was restored.

use domain::ports::StoreError;
use tokio_postgres::Row as SqlRow;

use crate::optimistic::{CommitSeq, meta::StoreMeta};

use super::{connection::SqlStep, sql::Statement};

/// The row as a statement found it.
#[derive(Clone, Debug)]
pub(super) struct Head {
    commits: u64,
    number: i64,
    /// With the number, the incarnation: two that began apart from each other may have the same number.
    name: i64,
    /// When commits were last found lost, and the time now, by the server's clock.
    since: u64,
    now: u64,
    stock_is_doubtful: bool,
    /// The last commit of this gateway.
    turn: u64,
}

/// How the row is read.
#[derive(Clone, Copy)]
pub(super) enum Lock {
    ForUpdate,
    None,
}

const COLUMNS: &str = "commits, incarnation, name, coalesce(floor(extract(epoch FROM lost_at) * 1000), 0)::bigint, \
    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, stock_is_doubtful";

impl Head {
    /// The statements that read the row and this gateway's last commit. The lock comes first, because what a later statement
    /// reads is then final.
    pub(super) fn steps(schema: &str, writer: i64, lock: Lock) -> [SqlStep; 2] {
        let lock = match lock {
            Lock::ForUpdate => " FOR UPDATE",
            Lock::None => "",
        };
        let head = format!("SELECT {COLUMNS} FROM \"{schema}\".head{lock}");
        let turn = format!("SELECT turn FROM \"{schema}\".turns WHERE writer = $1");
        [Statement::new(head), Statement::new(turn).number(writer)].map(SqlStep::Query)
    }

    /// Without its row nothing is locked, so nothing may be decided.
    pub(super) fn read(
        results: &mut impl Iterator<Item = Vec<SqlRow>>,
    ) -> Result<Self, StoreError> {
        let row = results.next().and_then(|rows| rows.into_iter().next());
        let turn = results.next().and_then(|rows| rows.first()?.try_get::<_, i64>(0).ok());
        let read = |row: SqlRow| {
            let number = |at| row.try_get::<_, i64>(at).ok();
            Some(Self {
                commits: number(0)?.cast_unsigned(),
                number: number(1)?,
                name: number(2)?,
                since: number(3)?.cast_unsigned(),
                now: number(4)?.cast_unsigned(),
                stock_is_doubtful: row.try_get(5).ok()?,
                turn: turn.unwrap_or(0).cast_unsigned(),
            })
        };
        row.and_then(read).ok_or_else(|| {
            StoreError::corrupt(
                "postgres",
                "the table `head`",
                "its row is gone, so nothing can be locked; restore the database from a backup",
            )
        })
    }

    pub(super) fn is_applied(&self, seq: CommitSeq) -> bool {
        self.turn == seq.number
    }

    /// Whether commits are missing that this gateway knew of: `acknowledged` is the last of its own.
    pub(super) fn is_behind(&self, known: &StoreMeta, acknowledged: u64) -> bool {
        self.commits < known.count
            || self.turn < acknowledged
            || self.incarnation() != known.incarnation
    }

    /// The number of a new incarnation; `None` if another gateway has begun it already. The number only grows: a lower one than
    /// the one known, or the same one with another name, is a loss, too.
    pub(super) fn next_incarnation(&self, known: &StoreMeta) -> Option<i64> {
        let number = known.incarnation.split('-').next().and_then(|number| number.parse().ok());
        let known = number.unwrap_or(0);
        (self.number <= known).then_some(known + 1)
    }

    fn incarnation(&self) -> String {
        format!("{}-{:016x}", self.number, self.name)
    }

    pub(super) fn meta(&self) -> StoreMeta {
        let mut meta = StoreMeta::new(self.incarnation(), self.commits, (self.since, self.now));
        meta.stock_is_doubtful = self.stock_is_doubtful;
        meta
    }

    /// Takes over what has changed. Says so when another gateway has found a loss.
    pub(super) fn update(&self, known: &mut StoreMeta) {
        if known.update(&self.incarnation(), self.commits, self.since) {
            tracing::warn!(
                "another gateway found that PostgreSQL lost commits, waiting while it restores records"
            );
        }
    }
}
