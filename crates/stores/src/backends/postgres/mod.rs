//! `postgres://`, `postgresql://`: a store shared by many gateways, on the database a team already has. Decisions run here on
//! cached rows (`crate::optimistic`); the server compares the read set and writes in one short transaction.
//!
//! - `address`, `tls`, `connection`: the URL, TLS, and the connection pool
//! - `layout`, `columns`, `reporting`: tables, key columns, and columns for people; `sql`: the statements; `migrate`: the schema
//! - `commit`, `validate`: commits and comparisons; `history`: the partitions of the ledger
//! - `notify`: notifications between gateways; `health`: checks before a server is trusted

mod address;
mod columns;
mod commit;
mod connection;
mod health;
mod history;
mod layout;
mod migrate;
mod notify;
mod reporting;
mod sql;
mod tls;
mod validate;

use std::sync::Arc;

use crate::{
    Backend, Finding, OpenError, Weight,
    backends::server::{ServerKind, retry_while_starting},
    optimistic::{BackendKind, RemoteBackend, RowCache},
};

use address::PostgresAddress;
use commit::{PostgresCommitter, PostgresServer};
use connection::{Pool, PooledConnection, QueryError, QueryErrorKind};
use layout::TableLayout;
use tls::MakeTls;

pub use address::is_schema;
pub use migrate::{Migrated, migrations_sql};

pub(crate) const NAME: &str = "postgres";
const SERVER: ServerKind = ServerKind { name: NAME, title: "PostgreSQL" };

const KIND: BackendKind = BackendKind { name: NAME, max_bytes: 2 << 20, refuses };

/// Connections for reads. With one for commits and two for notifications, a gateway has nine at most.
const READERS: usize = 6;

// === connecting ===

/// Opens the store at the URL.
pub(crate) async fn connect(url: &str) -> Result<Backend, OpenError> {
    let (address, tls) = parse(url)?;
    let (readers, mut findings) = examine_server(&address, &tls).await?;
    SERVER.refuse_unsafe(&findings)?;
    migrate::migrate(&readers).await?;
    findings.extend(missing_rights(&readers).await?);
    let (notifier, finding) = notify::start(&address, &tls).await?;
    findings.push(finding);
    let server = Arc::new(PostgresServer::new(Pool::new(address, tls, 1), readers));
    history::start(Arc::downgrade(&server));
    let committer = PostgresCommitter(Arc::clone(&server));
    let driver = RemoteBackend::start(KIND, server, committer, RowCache::default());
    Ok(SERVER.opened(driver, Arc::new(notifier), findings))
}

/// Examines the server at the URL and its tables, without changing anything.
pub(crate) async fn examine(url: &str) -> Result<Vec<Finding>, OpenError> {
    let (address, tls) = parse(url)?;
    let (pool, mut findings) = examine_server(&address, &tls).await?;
    if findings.iter().any(|finding| finding.weight == Weight::Bad) {
        return Ok(findings);
    }
    findings.push(migrate::examine(&pool).await?);
    findings.extend(missing_rights(&pool).await?);
    let (_notifier, finding) = notify::start(&address, &tls).await?;
    findings.push(finding);
    Ok(findings)
}

async fn missing_rights(pool: &Pool) -> Result<Option<Finding>, OpenError> {
    history::missing_rights(pool).await.map_err(|error| unreachable(&pool.address, &error))
}

async fn examine_server(
    address: &PostgresAddress,
    tls: &MakeTls,
) -> Result<(Pool, Vec<Finding>), OpenError> {
    let pool = Pool::new(address.clone(), tls.clone(), READERS);
    wait_for_start(&pool).await?;
    let findings = health::examine(&pool).await;
    Ok((pool, findings.map_err(|error| unreachable(address, &error))?))
}

/// Brings the schema at the URL up to date.
pub(crate) async fn migrate(url: &str) -> Result<Migrated, OpenError> {
    let (address, tls) = parse(url)?;
    let pool = Pool::new(address, tls, 1);
    wait_for_start(&pool).await?;
    migrate::migrate(&pool).await
}

fn parse(url: &str) -> Result<(PostgresAddress, MakeTls), OpenError> {
    let address = PostgresAddress::parse(url).map_err(|why| SERVER.bad_address(why))?;
    let tls = make_tls(&address)?;
    Ok((address, tls))
}

fn make_tls(address: &PostgresAddress) -> Result<MakeTls, OpenError> {
    MakeTls::new(&address.tls).map_err(|why| SERVER.bad_address(why))
}

async fn wait_for_start(pool: &Pool) -> Result<(), OpenError> {
    let connect = async || pool.get().await.map(PooledConnection::release);
    let is_starting = |error: &QueryError| error.kind == QueryErrorKind::Starting;
    let connected = retry_while_starting(connect, is_starting).await;
    connected.map_err(|error| unreachable(&pool.address, &error))
}

fn unreachable(address: &PostgresAddress, error: &QueryError) -> OpenError {
    SERVER.unreachable(address.to_string(), error)
}

fn refuses(key: &[u8]) -> Option<&'static str> {
    TableLayout::of(*key.first()?).refuses(key)
}
