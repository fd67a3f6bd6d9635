//! The server as this process sees it: the connection, the scripts, and the metadata of the stored data.

use std::sync::atomic::{AtomicU64, Ordering};

use domain::ports::{BoxError, ServerTime, StoreError};
use parking_lot::{Mutex, MutexGuard};
use redis::{Cmd, RedisError, RedisResult};

use crate::optimistic::{
    self, Commit, CommitOutcome, ReadSet, Validator, meta::StoreMeta, restore::LossyServer,
};

use super::{
    call::{CallSeq, CommitCall, CommitReply},
    connection::{ReconnectingConnection, Script, is_outcome_unknown},
    health,
    layout::KeyNames,
};

pub(super) struct RedisServer {
    /// The connection of the writer. While it waits for a replica, the server answers nothing else on it.
    pub(super) connection: ReconnectingConnection,
    /// The connection of the readers.
    readers: ReconnectingConnection,
    pub(super) names: KeyNames,
    commit_script: Script,
    pub(super) meta_script: Script,
    /// The random id of this process among the writers.
    pub(super) writer: u64,
    /// The last sequence number of this process that the server is known to have recorded.
    pub(super) acknowledged: AtomicU64,
    meta: Mutex<StoreMeta>,
}

/// Seconds that the last sequence number of a writer is kept, as in `commit.lua`.
const WRITER_KEPT: u64 = 2_592_000;

/// Why a call got no reply.
pub(super) struct CallError {
    /// The server may have run the script all the same.
    pub(super) outcome_unknown: bool,
    why: BoxError,
}

// === impl RedisServer ===

impl RedisServer {
    pub(super) fn new(
        connection: ReconnectingConnection,
        names: KeyNames,
        (commit_script, meta_script): (Script, Script),
        writer: u64,
        meta: StoreMeta,
    ) -> Self {
        let (acknowledged, meta) = (AtomicU64::new(0), Mutex::new(meta));
        let readers = connection.follower();
        Self { connection, readers, names, commit_script, meta_script, writer, acknowledged, meta }
    }

    /// Continues on data that was opened again. Its sequence numbers start at one.
    pub(super) fn replace_meta(&self, meta: StoreMeta) {
        *self.meta.lock() = meta;
        self.acknowledged.store(0, Ordering::Relaxed);
    }

    /// Compares a read set of the writer. This takes no sequence number, but notices when the server has forgotten one.
    pub(super) async fn compare(&self, reads: &ReadSet) -> Result<CommitReply, CallError> {
        self.compare_on(&self.connection, reads).await
    }

    async fn compare_on(
        &self,
        connection: &ReconnectingConnection,
        reads: &ReadSet,
    ) -> Result<CommitReply, CallError> {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        let seq = CallSeq { acknowledged, ..CallSeq::default() };
        self.call(connection, CommitCall { reads, commit: None, seq }).await
    }

    /// Compares the read set of a commit and applies its writes.
    pub(super) async fn commit(
        &self,
        commit: &Commit,
        seq: CallSeq,
    ) -> Result<CommitReply, CallError> {
        let call = CommitCall { reads: &commit.reads, commit: Some(commit), seq };
        self.call(&self.connection, call).await
    }

    async fn call(
        &self,
        connection: &ReconnectingConnection,
        call: CommitCall<'_>,
    ) -> Result<CommitReply, CallError> {
        let (incarnation, count) = {
            let meta = self.meta();
            (meta.incarnation.clone(), meta.count)
        };
        let add_args = |cmd: &mut Cmd| {
            call.add_args(&self.names, self.writer, (&incarnation, count), cmd);
        };
        let answer = connection.run(&self.commit_script, add_args).await?;
        let reply = call.read_reply(answer).ok_or_else(|| CallError {
            outcome_unknown: true,
            why: "unexpected reply to the commit script".into(),
        })?;
        if let CommitReply::Done { count, since } | CommitReply::Conflict { count, since, .. } =
            &reply
            && self.meta().update(&incarnation, *count, *since)
        {
            tracing::warn!(
                "another gateway found that Redis lost writes, waiting while it restores records"
            );
        }
        Ok(reply)
    }

    /// Whether a replica has this gateway's last commit. `WAIT` is about the writes of its own connection, and a connection
    /// that was opened again has none, so one goes before it. The number that follows shows that this server has the commit:
    /// it may be a replica that took over.
    pub(super) async fn is_replicated(&self) -> RedisResult<bool> {
        let seq = self.names.seq(self.writer);
        let mut all = redis::pipe();
        all.cmd("EXPIRE").arg(&seq).arg(WRITER_KEPT).cmd("WAIT").arg(1).arg(500);
        all.cmd("GET").arg(&seq);
        let replies = self.connection.send_all(&all, &seq).await?;
        let (_, replicas, seq): (u64, u64, Option<i64>) =
            redis::from_redis_value(redis::Value::Array(replies))?;
        Ok(replicas > 0 && self.is_last(seq))
    }

    /// Whether the server has this gateway's last commit.
    pub(super) async fn has_last_commit(&self) -> RedisResult<bool> {
        let mut cmd = redis::cmd("GET");
        cmd.arg(self.names.seq(self.writer));
        let seq = self.connection.send(&cmd).await?;
        Ok(self.is_last(redis::from_redis_value(seq)?))
    }

    /// The number is negative when that call found a conflict.
    fn is_last(&self, seq: Option<i64>) -> bool {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        seq.is_some_and(|seq| seq.unsigned_abs() >= acknowledged)
    }
}

impl LossyServer for RedisServer {
    fn meta(&self) -> MutexGuard<'_, StoreMeta> {
        self.meta.lock()
    }

    async fn extend_settling(&self) -> Result<(), StoreError> {
        let script = "local t = redis.call('TIME') \
                      local now = t[1] * 1000 + math.floor(t[2] / 1000) \
                      redis.call('HSET', KEYS[1], 'since', now) \
                      return now";
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script).arg(1).arg(self.names.meta());
        let since = self.connection.send(&cmd).await.map_err(CallError::from)?;
        let since = redis::from_redis_value(since).map_err(RedisError::from);
        // This gateway must not take its own announcement for a new loss.
        self.meta().since = since.map_err(CallError::from)?;
        Ok(())
    }

    async fn trust_stock(&self) -> Result<(), StoreError> {
        let mut cmd = redis::cmd("HDEL");
        cmd.arg(self.names.meta()).arg("stock");
        Ok(self.connection.send(&cmd).await.map(drop).map_err(CallError::from)?)
    }
}

impl Validator for RedisServer {
    async fn validate(&self, reads: &ReadSet) -> Result<CommitOutcome, StoreError> {
        self.meta().check_settled(super::NAME)?;
        let reply = self.compare_on(&self.readers, reads).await?;
        if let CommitReply::Lost = reply {
            // Perhaps only the server of this connection lacks commits: a master that was cut off, or a replica that lags.
            self.readers.close().await;
        }
        Ok(reply.into())
    }

    async fn server_time(&self) -> Result<ServerTime, StoreError> {
        let time = health::server_time(&self.readers, &self.names.meta()).await;
        time.map_err(|error| unavailable(describe(&error)))
    }
}

// === impl CallError ===

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        Self { outcome_unknown: is_outcome_unknown(&error), why: describe(&error).into() }
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        unavailable(error.why)
    }
}

/// The error in words that contain no stored data.
pub(super) fn describe(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some("WRONGTYPE"), Some(detail)) => format!(
            "{detail}: another program uses the keys of this store; delete it, or add ?prefix=NAME for keys of its own"
        ),
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, Some(detail)) => format!("{}: {detail}", error.category()),
        (_, None) if error.is_timeout() => "timeout: no reply within a second".to_owned(),
        (_, None) => error.to_string(),
    }
}

pub(super) fn unavailable(why: impl Into<BoxError>) -> StoreError {
    optimistic::unavailable(super::NAME, why)
}
