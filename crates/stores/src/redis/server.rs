//! The server as everybody in this process sees it: the way there, the scripts, and what is known of the data.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use domain::ports::{BoxError, StoreError};
use redis::{Cmd, RedisError, RedisResult};

use crate::remote::{self, Commit};

use super::{
    commit::{Call, Reply, Turn},
    head::Head,
    layout::Names,
    link::{Line, Script, is_uncertain},
};

pub(super) struct Server {
    pub(super) line: Line,
    pub(super) names: Names,
    pub(super) commit: Script,
    pub(super) head_script: Script,
    /// This process among all that write.
    pub(super) writer: u64,
    /// The last turn of this process the server is known to have.
    pub(super) acknowledged: AtomicU64,
    head: Mutex<Head>,
}

/// Why a call brought no answer.
pub(super) struct Failure {
    /// The call may have been carried out all the same.
    pub(super) is_uncertain: bool,
    why: BoxError,
}

impl Server {
    pub(super) fn new(
        line: Line,
        names: Names,
        (commit, head_script): (Script, Script),
        writer: u64,
        head: Head,
    ) -> Self {
        Self {
            line,
            names,
            commit,
            head_script,
            writer,
            acknowledged: AtomicU64::new(0),
            head: Mutex::new(head),
        }
    }

    /// What is known of the data.
    pub(super) fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the server to compare: a call without a turn, which still notices when the server has forgotten one.
    pub(super) async fn look(&self, commit: &Commit) -> Result<Reply, Failure> {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        self.call(commit, Turn { acknowledged, ..Turn::default() }).await
    }

    /// Asks the server to compare and write.
    pub(super) async fn call(&self, commit: &Commit, turn: Turn) -> Result<Reply, Failure> {
        let (incarnation, seen) = {
            let head = self.head();
            (head.incarnation.clone(), head.count)
        };
        let call = Call { commit, turn };
        let asked = |cmd: &mut Cmd| {
            call.ask(&self.names, self.writer, (&incarnation, seen), cmd);
        };
        let answer = self.line.run(&self.commit, asked).await?;
        let reply = call.read(answer).ok_or_else(|| Failure {
            is_uncertain: true,
            why: "it answered something that makes no sense".into(),
        })?;
        if let Reply::Done { count, since } | Reply::Stale { count, since, .. } = &reply
            && self.head().saw(&incarnation, *count, *since)
        {
            tracing::warn!(
                "another gateway found that Redis lost writes, waiting while it restores records"
            );
        }
        Ok(reply)
    }

    /// While gateways bring back what was lost, nobody is told that something is not there.
    pub(super) fn check_settled(&self) -> Result<(), StoreError> {
        if self.head().is_settling() {
            return Err(unavailable(
                "it lost writes a moment ago; the gateways are bringing back what they know (5 s)",
            ));
        }
        Ok(())
    }

    /// What is in stock was looked through.
    pub(super) async fn trust_stock(&self) -> RedisResult<()> {
        let mut cmd = redis::cmd("HDEL");
        cmd.arg(self.names.head()).arg("stock");
        self.line.ask(&cmd).await.map(drop)
    }

    /// Whether a replica has what was written until now.
    pub(super) async fn is_replicated(&self) -> RedisResult<bool> {
        let mut cmd = redis::cmd("WAIT");
        cmd.arg(1).arg(500);
        let answer = self.line.ask_owner(&cmd, &self.names.head()).await?;
        Ok(redis::from_redis_value::<u64>(answer)? > 0)
    }

    /// Tells the others to wait on: this gateway is still bringing back what it knows.
    pub(super) async fn tell_still_restoring(&self) -> RedisResult<()> {
        let say = "local t = redis.call('TIME') \
                   local now = t[1] * 1000 + math.floor(t[2] / 1000) \
                   redis.call('HSET', KEYS[1], 'since', now) \
                   return now";
        let since =
            self.line.ask(redis::cmd("EVAL").arg(say).arg(1).arg(self.names.head())).await?;
        // No news for this one.
        self.head().since = redis::from_redis_value(since)?;
        Ok(())
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self { is_uncertain: is_uncertain(&error), why: said(&error).into() }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        unavailable(failure.why)
    }
}

/// What went wrong, in words that hold no data.
pub(super) fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, Some(detail)) => format!("{}: {detail}", error.category()),
        (_, None) if error.is_timeout() => "it did not answer within a second".to_owned(),
        (_, None) => error.to_string(),
    }
}

pub(super) fn unavailable(why: impl Into<BoxError>) -> StoreError {
    remote::unavailable(super::NAME, why)
}
