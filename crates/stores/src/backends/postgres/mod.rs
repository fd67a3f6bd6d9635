//! `postgres://`, `postgresql://`: a store shared by many gateways, on the database a team already has. Decisions run here on
//! cached rows (`crate::optimistic`); the server compares the read set and writes in one short transaction.
//!
//! - `address`, `tls`, `connection`: the URL, TLS, and the connection pool
//! - `layout`, `columns`, `reporting`: tables, key columns, and columns for people; `sql`: the statements; `migrate`: the schema
//! - `server`, `commit`, `locked`, `validate`: commits and comparisons; `head`: what shows that commits were lost
//! - `history`: the partitions of the ledger
//! - `notify`: notifications between gateways; `health`: checks before a server is trusted

mod address;
mod columns;
mod commit;
mod connection;
mod head;
mod health;
mod history;
mod layout;
mod locked;
mod migrate;
mod notify;
mod reporting;
mod server;
mod sql;
mod tls;
mod validate;

use std::sync::Arc;

use domain::ports::Clock;

use crate::{
    Backend, Finding, OpenError, Weight,
    backends::server::{ServerKind, retry_while_starting},
    optimistic::{BackendKind, RemoteBackend, RowCache, notify::RemoteNotifier},
    schema::{codec::Codec, seal::Keyring},
};

use address::PostgresAddress;
use commit::PostgresCommitter;
use connection::{Pool, PooledConnection, QueryError, QueryErrorKind};
use head::{Head, Lock};
use layout::TableLayout;
use server::PostgresServer;

pub use address::is_schema;
pub use migrate::{Migrated, migrations_sql};

pub(crate) const NAME: &str = "postgres";
const SERVER: ServerKind = ServerKind { name: NAME, title: "PostgreSQL" };

const KIND: BackendKind = BackendKind { codec: Codec::plain(NAME), max_bytes: 2 << 20, refuses };

/// Connections for reads. With one for commits and two for notifications, a gateway has nine at most.
const READERS: usize = 6;

/// See [`crate::is_exposed`].
pub(crate) fn is_exposed(url: &str) -> bool {
    PostgresAddress::parse(url)
        .is_ok_and(|address| !address.is_private() || !address.listen_address().is_private())
}

pub(crate) async fn connect(
    url: &str,
    keys: Option<&'static Keyring>,
) -> Result<Backend, OpenError> {
    let (readers, mut findings) = examine_server(url).await?;
    SERVER.refuse_unsafe(&findings)?;
    migrate::migrate(&readers).await?;
    let notifier = examine_tables(&readers, &mut findings).await?;
    let kind = KIND.sealing_with(keys);
    let writer = fastrand::i64(1..);
    let meta = read_head(&readers, writer).await?.meta();
    let pools = (Pool::new(&readers.address, 1)?, readers);
    let server = Arc::new(PostgresServer::new(pools, kind.codec, writer, meta));
    history::start(Arc::downgrade(&server));
    let committer = PostgresCommitter::new(Arc::clone(&server));
    let driver = RemoteBackend::start(kind, server, committer, RowCache::default());
    SERVER.opened(driver, Arc::new(notifier), findings, keys).await
}

/// Examines the server at the URL and its tables, without changing anything.
pub(crate) async fn examine(url: &str, clock: &dyn Clock) -> Result<Vec<Finding>, OpenError> {
    let (pool, mut findings) = examine_server(url).await?;
    if !findings.iter().any(|finding| finding.weight == Weight::Bad) {
        findings.push(migrate::examine(&pool).await?);
        examine_tables(&pool, &mut findings).await?;
    }
    let compared = Finding::clock(clock, health::server_time(&pool)).await;
    findings.push(compared.map_err(|error| pool.failed_to_open(&error))?);
    Ok(findings)
}

async fn examine_server(url: &str) -> Result<(Pool, Vec<Finding>), OpenError> {
    let pool = open_pool(url, READERS).await?;
    let findings = health::examine(&pool).await;
    let findings = findings.map_err(|error| pool.failed_to_open(&error))?;
    Ok((pool, findings))
}

/// Examines the rights on the tables and the notifications.
async fn examine_tables(
    pool: &Pool,
    findings: &mut Vec<Finding>,
) -> Result<RemoteNotifier, OpenError> {
    let rights = history::missing_rights(pool).await;
    findings.extend(rights.map_err(|error| pool.failed_to_open(&error))?);
    let (notifier, finding) = notify::start(&pool.address).await?;
    findings.push(finding);
    Ok(notifier)
}

async fn read_head(pool: &Pool, writer: i64) -> Result<Head, OpenError> {
    let steps = Head::steps(&pool.address.schema, writer, Lock::None);
    let results = pool.run(&steps).await.map_err(|error| pool.failed_to_open(&error))?;
    Ok(Head::read(&mut results.into_iter())?)
}

/// Brings the schema at the URL up to date.
pub(crate) async fn migrate(url: &str) -> Result<Migrated, OpenError> {
    migrate::migrate(&open_pool(url, 1).await?).await
}

async fn open_pool(url: &str, size: usize) -> Result<Pool, OpenError> {
    let address = PostgresAddress::parse(url).map_err(|why| SERVER.bad_address(why))?;
    let pool = Pool::new(&address, size)?;
    let connect = async || pool.get().await.map(PooledConnection::release);
    let is_starting = |error: &QueryError| error.kind == QueryErrorKind::Starting;
    let connected = retry_while_starting(connect, is_starting).await;
    connected.map_err(|error| pool.failed_to_open(&error))?;
    Ok(pool)
}

fn refuses(key: &[u8]) -> Option<&'static str> {
    TableLayout::of(*key.first()?).refuses(key)
}
