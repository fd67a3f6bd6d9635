//! Reads the metadata of the stored data and its format (`head.lua`).

use redis::{ErrorKind, RedisResult, Value};

use crate::optimistic::meta::StoreMeta;

use super::{
    connection::{ReconnectingConnection, Script},
    layout::{FORMAT, KeyNames, SHARDS},
};

pub(super) enum OpenedMeta {
    Opened(StoreMeta),
    OtherFormat(String),
}

pub(super) enum StoredFormat {
    Empty,
    Current,
    Other(String),
}

// === reading and opening ===

impl OpenedMeta {
    /// Opens the data. `lost`: the incarnation and the commits that this gateway knew before the server lost one of its commits.
    pub(super) async fn open(
        connection: &ReconnectingConnection,
        script: &Script,
        names: &KeyNames,
        writer: u64,
        lost: Option<(&str, u64)>,
    ) -> RedisResult<Self> {
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
            let count = count.parse().ok()?;
            let mut meta = StoreMeta::new(incarnation.clone(), count, (since, now));
            meta.stock_is_doubtful = stock == "doubtful";
            Some(OpenedMeta::Opened(meta))
        }
        _ => None,
    }
}
