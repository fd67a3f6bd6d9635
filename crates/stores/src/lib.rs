//! The stores: one module per backend. What every backend must do is in the crate `store-tests`.
//!
//! # Layout
//! - [`connect`] turns a store's URL into a [`Backend`]; [`open`] does so without a server; `examine`: what was seen of one
//! - `memory`, `embedded`, `redis`, `postgres`: the backends; `remote`: deciding on rows that lie on a server; `doorbell`: hints within
//!   one process
//! - `adapter`: every method of the ports, once; `queued`, `codec`: how a decision travels and how a row is written
//! - `rules/`: every decision, written once on top of a transaction (`tx`); `readings`: every query; `tables`, `keys`: what is
//!   kept and how it is found

mod adapter;
mod codec;
mod doorbell;
#[cfg(feature = "dynamodb")]
#[expect(
    clippy::disallowed_methods,
    reason = "the way to a server has timeouts of its own; what is decided gets its time from the caller"
)]
mod dynamodb;
mod embedded;
mod examine;
mod keys;
mod memory;
#[expect(
    clippy::disallowed_methods,
    reason = "the way to a server has timeouts of its own; what is decided gets its time from the caller"
)]
mod postgres;
mod queued;
mod readings;
#[expect(
    clippy::disallowed_methods,
    reason = "the way to a server has timeouts of its own; what is decided gets its time from the caller"
)]
mod redis;
mod remote;
mod rules;
mod tables;
mod tx;

use std::{io, path::PathBuf, sync::Arc};

use domain::ports::{Archive, Doorbell, Records, Store};
use futures_util::future::BoxFuture;

pub use adapter::{Counters, StoreAdapter};
pub use doorbell::LocalDoorbell;
#[cfg(feature = "dynamodb")]
pub use dynamodb::{Billing, DynamoDbProbe, DynamoDbUse, Inventory, Printed};
pub use examine::{Finding, Weight};
pub use postgres::{Migrated, is_schema, migrations_sql};
pub use redis::is_prefix;

/// An open store in its roles.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The decisions.
    pub store: Arc<dyn Store>,
    /// The readings.
    pub records: Arc<dyn Records>,
    /// The history of another store.
    pub archive: Arc<dyn Archive>,
    /// The hints.
    pub doorbell: Arc<dyn Doorbell>,
    /// Its name in messages and metrics.
    pub name: &'static str,
    /// What was seen of its server.
    pub findings: Vec<Finding>,
}

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no store of this release.
    #[error(
        "unsupported store URL {0:?}; supported: memory:, embedded:DIR, redis://…, rediss://…, redis+cluster://…, postgres://… and, unless this program was built without it, dynamodb:TABLE"
    )]
    Unknown(String),
    /// The table is not there.
    #[error(
        "DynamoDB at {server} has no table {table}; run `solvegate store migrate` to create it, or add --print for its definition"
    )]
    NoTable {
        /// Where.
        server: String,
        /// Which.
        table: String,
    },
    /// A store without tables has none to migrate.
    #[error("the store {0:?} needs no migration; only postgres:// and dynamodb: do")]
    NoTables(String),
    /// `embedded:` without a directory.
    #[error("embedded: needs a directory; write it as embedded:./solvegate-data")]
    NoDirectory,
    /// The directory or a file in it cannot be used.
    #[error("the store directory {} cannot be used: {source}; check that it exists and belongs to this user", dir.display())]
    Directory {
        /// Which.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the store directory {} is in use by another process; stop that one, or give this one a directory of its own", dir.display())]
    InUse {
        /// Which.
        dir: PathBuf,
    },
    /// It was written by another release.
    #[error("the store in {} has format {found} and this release reads format {known}; start the release that wrote it, or use another directory", dir.display())]
    Format {
        /// Which.
        dir: PathBuf,
        /// What it says it is.
        found: String,
        /// What this release reads.
        known: u8,
    },
    /// The address makes no sense.
    #[error("the address of the {store} store cannot be read: {why}")]
    Address {
        /// Of which.
        store: &'static str,
        /// Why, without the password it may hold.
        why: String,
    },
    /// The server cannot be reached, or refuses.
    #[error(
        "{store} at {server} cannot be used: {why}; check that it is started and that address, user and password are right"
    )]
    Unreachable {
        /// Which.
        store: &'static str,
        /// Where.
        server: String,
        /// What it or the network said.
        why: String,
    },
    /// The server is set up in a way that costs money.
    #[error("{store} is not safe like this: {what}; {remedy}")]
    Unsafe {
        /// Which.
        store: &'static str,
        /// What was seen.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The data there was written by another release.
    #[error(
        "the data in {store} at {server} has format {found}, which this release does not read; start the release that wrote it, or add {remedy}"
    )]
    Foreign {
        /// Which.
        store: &'static str,
        /// Where.
        server: String,
        /// What it says it is.
        found: String,
        /// What to add to the URL for a corner of one's own.
        remedy: &'static str,
    },
    /// Its data cannot be trusted.
    #[error("the store in {} is damaged: {why}; restore the directory from a backup, or move it away to start empty", dir.display())]
    Damaged {
        /// Which.
        dir: PathBuf,
        /// What was found.
        why: String,
    },
}

// The functions below return boxed futures on purpose. The body of an `async fn` is compiled in every crate that polls it,
// and with it every backend it can reach; a boxed future is compiled here, once.

/// Opens the store a URL names, also one on a server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let url = format!("embedded:{}", directory.path().display());
/// let backend = stores::connect(&url).await?;
/// assert_eq!(backend.name, "embedded");
///
/// // The roles of a store are ports of `domain`: decisions, readings, history, notifications.
/// backend.store.set_memo("greeting", b"hello".to_vec()).await?;
/// assert_eq!(backend.store.memos("greet").await?, [("greeting".to_owned(), b"hello".to_vec())]);
///
/// // An address that makes no sense is an error that says what to write instead.
/// let refused = stores::connect("mysql://localhost").await.unwrap_err();
/// assert!(refused.to_string().contains("postgres://"));
/// # Ok(())
/// # }
/// ```
pub fn connect(url: &str) -> BoxFuture<'_, Result<Backend, OpenError>> {
    Box::pin(async move {
        match scheme_of(url).as_str() {
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => redis::connect(url).await,
            "postgres" | "postgresql" => postgres::connect(url).await,
            #[cfg(feature = "dynamodb")]
            "dynamodb" => dynamodb::connect(url).await,
            _ => open(url),
        }
    })
}

/// Looks at the store a URL names, as [`connect`] does before it opens it. On a server nothing is changed.
pub fn examine(url: &str) -> BoxFuture<'_, Result<Vec<Finding>, OpenError>> {
    Box::pin(async move {
        match scheme_of(url).as_str() {
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => redis::examine(url).await,
            "postgres" | "postgresql" => postgres::examine(url).await,
            #[cfg(feature = "dynamodb")]
            "dynamodb" => dynamodb::examine(url).await,
            _ => open(url).map(|backend| backend.findings),
        }
    })
}

/// Brings the tables of the store at a URL up to date; [`connect`] does so, too.
pub fn migrate(url: &str) -> BoxFuture<'_, Result<Migrated, OpenError>> {
    Box::pin(async move {
        match scheme_of(url).as_str() {
            "postgres" | "postgresql" => postgres::migrate(url).await,
            #[cfg(feature = "dynamodb")]
            "dynamodb" => dynamodb::migrate(url, Billing::OnDemand).await,
            other => Err(OpenError::NoTables(other.to_owned())),
        }
    })
}

/// Reads a `dynamodb:` URL: the table and where it is, or what is wrong with it.
#[cfg(feature = "dynamodb")]
pub fn table_of(url: &str) -> Result<(String, String), String> {
    dynamodb::table_of(url)
}

/// Makes the table a `dynamodb:` URL names, paid for as wished.
#[cfg(feature = "dynamodb")]
pub fn make_table(url: &str, billing: Billing) -> BoxFuture<'_, Result<Migrated, OpenError>> {
    Box::pin(async move { dynamodb::migrate(url, billing).await })
}

/// The definition of the table a `dynamodb:` URL names, for whoever makes it.
#[cfg(feature = "dynamodb")]
pub fn table_definition(url: &str, billing: Billing, form: Printed) -> Result<String, OpenError> {
    dynamodb::print(url, billing, form)
}

/// Opens a store of this process alone: `memory:` or `embedded:DIR`.
pub fn open(url: &str) -> Result<Backend, OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(backend(StoreAdapter::in_memory(), "memory")),
        Some(("embedded", "")) => Err(OpenError::NoDirectory),
        Some(("embedded", dir)) => Ok(backend(StoreAdapter::embedded(dir)?, "embedded")),
        Some(_) | None => Err(OpenError::Unknown(scheme_of(url))),
    }
}

fn backend(store: StoreAdapter, name: &'static str) -> Backend {
    let store = Arc::new(store);
    Backend {
        records: store.clone(),
        archive: store.clone(),
        store,
        doorbell: Arc::new(LocalDoorbell::new()),
        name,
        findings: Vec::new(),
    }
}

/// Nothing is opened on a server where something is wrong.
fn refuse_bad(store: &'static str, findings: &[Finding]) -> Result<(), OpenError> {
    let bad = findings.iter().find(|finding| finding.weight == Weight::Bad);
    bad.map_or(Ok(()), |bad| {
        let (what, remedy) = (bad.what.clone(), bad.remedy.clone().unwrap_or_default());
        Err(OpenError::Unsafe { store, what, remedy })
    })
}

/// What comes after the scheme may hold a password.
fn scheme_of(url: &str) -> String {
    url.split(':').next().unwrap_or_default().chars().take(40).collect()
}
