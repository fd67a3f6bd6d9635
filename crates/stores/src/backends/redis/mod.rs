//! `redis://`, `rediss://`, `redis+cluster://`: a store shared by many gateways. Decisions run here on cached rows
//! (`crate::optimistic`); a script on the server compares the read set and writes.
//!
//! - `address`, `connection`: the URL, and the reconnecting connection; `server`: the connection, the scripts and the metadata
//! - `layout`: the keys; `commit`: the commit protocol; `call`, `commit.lua`: one commit on the wire
//! - `replicas`: whether a write is replicated, so that money may be spent on it
//! - `meta`, `head.lua`: detecting lost writes (`optimistic::restore` restores this gateway's records)
//! - `notify`: notifications between gateways; `health`: checks before a server is trusted

mod address;
mod call;
mod commit;
mod connection;
mod health;
mod layout;
mod meta;
mod notify;
mod replicas;
mod server;

use std::sync::Arc;

use domain::ports::Clock;
use redis::{RedisError, RedisResult};

use crate::{
    Backend, Finding, OpenError,
    backends::server::{ServerKind, retry_while_starting},
    optimistic::{BackendKind, RemoteBackend, RowCache},
    schema::{codec::Codec, seal::Keyring},
};

use address::RedisAddress;
use commit::RedisCommitter;
use connection::{Connection, ReconnectingConnection, Script};
use layout::KeyNames;
use meta::{OpenedMeta, StoredFormat};
use replicas::Replicas;
use server::{RedisServer, describe};

pub use address::is_prefix;

pub(crate) const NAME: &str = "redis";
const SERVER: ServerKind = ServerKind { name: NAME, title: "Redis" };

const KIND: BackendKind =
    BackendKind { codec: Codec::plain(NAME), max_bytes: 2 << 20, refuses: |_| None };

/// See [`crate::is_exposed`].
pub(crate) fn is_exposed(url: &str) -> bool {
    RedisAddress::parse(url).is_ok_and(|address| address.is_exposed())
}

pub(crate) async fn connect(
    url: &str,
    keys: Option<&'static Keyring>,
) -> Result<Backend, OpenError> {
    let (connection, names, findings) = examine_server(url).await?;
    SERVER.refuse_unsafe(&findings)?;
    let address = connection.address.clone();
    let failed = |error: RedisError| unreachable(&address, &error);
    let scripts = (
        load(&connection, include_str!("commit.lua")).await.map_err(failed)?,
        load(&connection, include_str!("head.lua")).await.map_err(failed)?,
    );
    let writer = fastrand::u64(1..);
    let opened = OpenedMeta::open(&connection, &scripts.1, &names, writer, None).await;
    let meta = match opened.map_err(failed)? {
        OpenedMeta::Opened(meta) => meta,
        OpenedMeta::OtherFormat(found) => return Err(foreign(&address, found)),
    };
    let replication = health::replication_of(&connection, &names.meta()).await.map_err(failed)?;
    let publisher = ReconnectingConnection::new(address.clone(), None);
    let notifier = notify::start(address, publisher, &names);
    let server = Arc::new(RedisServer::new(connection, names, scripts, writer, meta));
    let kind = KIND.sealing_with(keys);
    let replicas = Replicas::new(replication);
    let committer = RedisCommitter::new(Arc::clone(&server), kind.codec, replicas);
    let driver = RemoteBackend::start(kind, server, committer, RowCache::default());
    SERVER.opened(driver, Arc::new(notifier), findings, keys).await
}

/// Examines the server at the URL and the format of its data, without changing anything.
pub(crate) async fn examine(url: &str, clock: &dyn Clock) -> Result<Vec<Finding>, OpenError> {
    let (connection, names, mut findings) = examine_server(url).await?;
    let failed = |error: RedisError| unreachable(&connection.address, &error);
    let meta = names.meta();
    let server_time = health::server_time(&connection, &meta);
    findings.push(Finding::clock(clock, server_time).await.map_err(failed)?);
    let format = meta::stored_format(&connection, &names).await;
    findings.push(match format.map_err(failed)? {
        StoredFormat::Empty => Finding::good("it has no data yet; `serve` creates it"),
        StoredFormat::Current => Finding::good("its data has this release's format"),
        StoredFormat::Other(found) => return Err(foreign(&connection.address, found)),
    });
    Ok(findings)
}

async fn examine_server(
    url: &str,
) -> Result<(ReconnectingConnection, KeyNames, Vec<Finding>), OpenError> {
    let address = RedisAddress::parse(url).map_err(|why| SERVER.bad_address(why))?;
    let failed = |error: RedisError| unreachable(&address, &error);
    let is_starting = |error: &RedisError| error.code() == Some("LOADING");
    let opened = retry_while_starting(|| first_connection(&address), is_starting).await;
    let connection = ReconnectingConnection::new(address.clone(), Some(opened.map_err(failed)?));
    let names = KeyNames::new(&address.prefix);
    let findings = health::examine(&connection, &names.meta()).await.map_err(failed)?;
    Ok((connection, names, findings))
}

async fn first_connection(address: &RedisAddress) -> RedisResult<Connection> {
    let mut connection = Connection::open(address, None).await?;
    connection.send(redis::cmd("EXISTS").arg("x"), None).await?;
    Ok(connection)
}

fn unreachable(address: &RedisAddress, error: &RedisError) -> OpenError {
    SERVER.unreachable(address.to_string(), describe(error))
}

fn foreign(address: &RedisAddress, found: String) -> OpenError {
    SERVER.foreign(address.to_string(), found, "?prefix=NAME to use keys of its own")
}

async fn load(connection: &ReconnectingConnection, text: &'static str) -> RedisResult<Script> {
    let sha = connection.send(redis::cmd("SCRIPT").arg("LOAD").arg(text)).await?;
    Ok(Script { text, sha: redis::from_redis_value(sha)? })
}
