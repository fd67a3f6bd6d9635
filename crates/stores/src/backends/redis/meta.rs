//! The metadata of the stored data: its format, its incarnation, and the number of commits. A server with fewer commits than it
//! has acknowledged has lost writes; that begins a new incarnation.

use std::time::Duration;

use redis::{ErrorKind, RedisResult, Value};
use tokio::time::Instant;

use super::{
    connection::{ReconnectingConnection, Script},
    layout::{FORMAT, KeyNames, SHARDS},
};

/// The metadata as a gateway knows it.
#[derive(Clone, Debug)]
pub(super) struct StoreMeta {
    pub(super) incarnation: String,
    /// Commits seen.
    pub(super) count: u64,
    /// When a loss was last found, by the server's clock; zero for never.
    pub(super) since: u64,
    /// Until then decisions wait for the gateways to restore their records.
    pub(super) settles_at: Option<Instant>,
    /// Until then no money is spent on what the rows say.
    pub(super) doubtful_until: Option<Instant>,
    /// This gateway has not restored all of its records yet.
    pub(super) is_restoring: bool,
    /// When the data was opened, by the server's clock.
    pub(super) opened_at: u64,
    /// Whether tokens in stock may have been delivered already.
    pub(super) stock_is_doubtful: bool,
}

pub(super) enum OpenedMeta {
    Opened(StoreMeta),
    OtherFormat(String),
}

pub(super) enum StoredFormat {
    Empty,
    Current,
    Other(String),
}

/// How long the gateways have to restore their records.
const SETTLING: Duration = Duration::from_secs(5);
/// After this time no gateway restores anything (reliability.md, P16).
const DOUBT: Duration = Duration::from_secs(20);

impl StoreMeta {
    /// Opens the data. `lost`: the incarnation and the commits that this gateway knew before the server lost one of its commits.
    pub(super) async fn open(
        connection: &ReconnectingConnection,
        script: &Script,
        names: &KeyNames,
        writer: u64,
        lost: Option<(&str, u64)>,
    ) -> RedisResult<OpenedMeta> {
        let new_name = format!("{:016x}", fastrand::u64(..));
        let (incarnation, count) = lost.unwrap_or_default();
        let answer = connection.run(script, |cmd| {
            cmd.arg(2).arg(names.meta()).arg(names.seq(writer)).arg(FORMAT).arg(SHARDS);
            cmd.arg(&new_name).arg(incarnation).arg(count).arg(u8::from(lost.is_some()));
            for index in names.indexes() {
                cmd.arg(index);
            }
        });
        let unreadable = (ErrorKind::UnexpectedReturnType, "unexpected reply to its script");
        read(answer.await?).ok_or_else(|| unreadable.into())
    }

    /// Takes the metadata of a reply. Returns `true` when another gateway has found a loss.
    pub(super) fn update(&mut self, incarnation: &str, count: u64, since: u64) -> bool {
        if self.incarnation != incarnation {
            // The reply is late and belongs to an earlier incarnation.
            return false;
        }
        self.count = self.count.max(count);
        let is_news = since > self.since;
        if is_news {
            self.since = since;
            self.doubt(Duration::ZERO);
        }
        is_news
    }

    fn doubt(&mut self, ago: Duration) {
        let until = |period: Duration| period.checked_sub(ago).map(|left| Instant::now() + left);
        self.settles_at = until(SETTLING);
        self.doubtful_until = until(DOUBT);
    }

    pub(super) fn is_settling(&self) -> bool {
        self.is_restoring || self.settles_at.is_some_and(|at| Instant::now() < at)
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful_until.is_some_and(|at| Instant::now() < at)
    }
}

pub(super) async fn stored_format(
    connection: &ReconnectingConnection,
    names: &KeyNames,
) -> RedisResult<StoredFormat> {
    let mut cmd = redis::cmd("HMGET");
    cmd.arg(names.meta()).arg("format").arg("shards");
    let (format, shards): (Option<String>, Option<String>) =
        redis::from_redis_value(connection.send(&cmd).await?)?;
    Ok(match (format, shards) {
        (None, _) => StoredFormat::Empty,
        (Some(format), Some(shards)) if format == FORMAT && shards == SHARDS => {
            StoredFormat::Current
        }
        (Some(format), shards) => {
            StoredFormat::Other(other_format(&format, &shards.unwrap_or_default()))
        }
    })
}

fn other_format(format: &str, shards: &str) -> String {
    format!("{format} with {shards} shards")
}

fn read(answer: Value) -> Option<OpenedMeta> {
    let texts: Vec<String> = redis::from_redis_value(answer).ok()?;
    match texts.as_slice() {
        [word, format, shards] if word == "other" => {
            Some(OpenedMeta::OtherFormat(other_format(format, shards)))
        }
        [word, incarnation, count, since, stock, now] if word == "open" => {
            let (since, now): (u64, u64) = (since.parse().ok()?, now.parse().ok()?);
            let mut meta = StoreMeta {
                incarnation: incarnation.clone(),
                count: count.parse().ok()?,
                since,
                settles_at: None,
                doubtful_until: None,
                is_restoring: false,
                opened_at: now,
                stock_is_doubtful: stock == "doubtful",
            };
            if since > 0 {
                meta.doubt(Duration::from_millis(now.saturating_sub(since)));
            }
            Some(OpenedMeta::Opened(meta))
        }
        _ => None,
    }
}
