//! The stores. `connect` opens the backend that a URL names and returns it as the store ports of `domain`. The conformance
//! suite that every backend passes is the crate `store-tests`.
//!
//! # Layout, in the order of a write
//! - `adapter`: implements the ports; each method runs one decision or one query in a transaction of the backend
//! - `optimistic/`: runs decisions for the backends on a server: row cache, batches, retries after conflicts
//! - `decisions/`: every decision of the `Store` port, written once for all backends; `queries`, `audit`: the reads of `Records`
//! - `tx`: the transaction that decisions and queries run in; `schema/`: tables, keys, row encoding
//! - `backends/`: `memory`, `embedded`, `redis`, `postgres`, `dynamodb`
//! - `timing`: the gateway's clock, compared with the server's
//! - `notifier`: claim notifications within one process; `examine`: the findings about a server that `doctor` prints

mod adapter;
mod audit;
mod backends;
mod decisions;
mod examine;
mod notifier;
mod optimistic;
mod queries;
mod schema;
mod timing;
mod tx;

use std::{io, path::PathBuf, sync::Arc};

use domain::ports::{Archive, Clock, Notifier, Records, Store, StoreError, StoreResult as Result};
use futures_util::future::BoxFuture;

pub use adapter::{Counters, StoreAdapter};
#[cfg(feature = "dynamodb")]
pub use backends::dynamodb::{Billing, DynamoDbProbe, DynamoDbUse, Inventory, Printed};
pub use backends::postgres::{Migrated, is_schema, migrations_sql};
pub use backends::redis::is_prefix;
pub use examine::{Finding, Weight};
pub use notifier::LocalNotifier;
pub use schema::seal::{BadEncryptionKey, EncryptionKey, KeyId, Keyring};
pub use timing::Timing;

/// An open store, as the ports it implements.
#[derive(Clone, Debug)]
pub struct Backend {
    pub store: Arc<dyn Store>,
    pub records: Arc<dyn Records>,
    pub archive: Arc<dyn Archive>,
    pub notifier: Arc<dyn Notifier>,
    /// The name in messages and metrics.
    pub name: &'static str,
    /// The findings of [`examine`] about its server.
    pub findings: Vec<Finding>,
    /// The clock that its decisions follow.
    pub timing: Arc<Timing>,
    /// What implements the first three, for its counters.
    pub adapter: Arc<StoreAdapter>,
}

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "unsupported store URL {0:?}; supported: memory:, embedded:DIR, redis://…, rediss://…, redis+cluster://…, postgres://… and, unless this program was built without it, dynamodb:TABLE"
    )]
    Unknown(String),
    #[error(
        "DynamoDB at {server} has no table {table}; run `solvegate store migrate` to create it, or add --print for its definition"
    )]
    NoTable { server: String, table: String },
    #[error("the store {0:?} needs no migration; only postgres:// and dynamodb: do")]
    NoTables(String),
    #[error("embedded: needs a directory; write it as embedded:./solvegate-data")]
    NoDirectory,
    #[error("the store directory {} cannot be used: {source}; check that it exists and belongs to this user", dir.display())]
    Directory { dir: PathBuf, source: io::Error },
    #[error("the store directory {} is in use by another process; stop that one, or use another directory", dir.display())]
    InUse { dir: PathBuf },
    /// The directory was written by a release with another format.
    #[error("the store in {} has format {found} and this release reads format {known}; start the release that wrote it, or use another directory", dir.display())]
    Format { dir: PathBuf, found: String, known: u8 },
    #[error("the address of the {store} store cannot be read: {why}")]
    Address {
        store: &'static str,
        /// Never contains the password of the address.
        why: String,
    },
    #[error(
        "{store} at {server} cannot be used: {why}; check that it is started and that address, user and password are right"
    )]
    Unreachable { store: &'static str, server: String, why: String },
    #[error(
        "DynamoDB at {server} cannot be used: this process has no AWS credentials; set AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role, and set AWS_REGION if the store's URL names no region ({why})"
    )]
    NoCredentials { server: String, why: String },
    /// The server is configured in a way that can cost money.
    #[error("{store} is not safe like this: {what}; {remedy}")]
    Unsafe { store: &'static str, what: String, remedy: String },
    /// The server's data was written by a release with another format.
    #[error(
        "the data in {store} at {server} has format {found}, which this release does not read; start the release that wrote it, or add {remedy}"
    )]
    Foreign {
        store: &'static str,
        server: String,
        found: String,
        /// The URL option that separates this store from the other data.
        remedy: &'static str,
    },
    /// Other gateways seal the rows with a key that this one does not have.
    #[error(
        "the store has rows that are sealed with key {ids}, and `[store] encryption_key` {given}; set it to the key of the other gateways, or add the missing key as the second one"
    )]
    Key { ids: String, given: String },
    #[error("{0}; check the store, then start again")]
    Failed(#[from] StoreError),
    #[error("the store in {} is damaged: {why}; restore the directory from a backup, or move it away to start empty", dir.display())]
    Damaged { dir: PathBuf, why: String },
}

// The functions below return boxed futures on purpose. The body of an `async fn` is compiled in every crate that polls it,
// and with it every backend it can reach; a boxed future is compiled here, once.

/// Opens the store that a URL names.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let url = format!("embedded:{}", directory.path().display());
/// let backend = stores::connect(&url).await?;
/// assert_eq!(backend.name, "embedded");
///
/// // A backend implements the store ports of `domain`.
/// backend.store.set_memo("greeting", b"hello".to_vec()).await?;
/// assert_eq!(backend.store.memos("greet").await?, [("greeting".to_owned(), b"hello".to_vec())]);
///
/// // The error for an unsupported address names the supported ones.
/// let refused = stores::connect("mysql://localhost").await.unwrap_err();
/// assert!(refused.to_string().contains("postgres://"));
/// # Ok(())
/// # }
/// ```
pub fn connect(url: &str) -> BoxFuture<'_, Result<Backend, OpenError>> {
    connect_sealed(url, None)
}

/// Opens the store that a URL names. Rows that hold secrets are sealed with the first of the keys; rows of before are sealed
/// when a key is new. A store whose rows are sealed with a key that is not given is refused.
pub fn connect_sealed<'a>(
    url: &'a str,
    keys: Option<&'static Keyring>,
) -> BoxFuture<'a, Result<Backend, OpenError>> {
    Box::pin(async move {
        match scheme_of(url).as_str() {
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => {
                backends::redis::connect(url, keys).await
            }
            "postgres" | "postgresql" => backends::postgres::connect(url, keys).await,
            #[cfg(feature = "dynamodb")]
            "dynamodb" => backends::dynamodb::connect(url, keys).await,
            _ => {
                let (store, name) = open_local(url, keys)?;
                let findings = store.check_keys(keys).await?.into_iter().collect();
                Ok(Backend { findings, ..backend(store, name) })
            }
        }
    })
}

/// Checks the store that a URL names, as [`connect`] does before it opens it, and compares the clock with its server's. Nothing
/// changes on a server.
pub fn examine<'a>(
    url: &'a str,
    clock: &'a dyn Clock,
) -> BoxFuture<'a, Result<Vec<Finding>, OpenError>> {
    Box::pin(async move {
        match scheme_of(url).as_str() {
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => {
                backends::redis::examine(url, clock).await
            }
            "postgres" | "postgresql" => backends::postgres::examine(url, clock).await,
            #[cfg(feature = "dynamodb")]
            "dynamodb" => backends::dynamodb::examine(url, clock).await,
            _ => open(url).map(|backend| backend.findings),
        }
    })
}

/// Whether others on the network could read the connection to a store or pretend to be its server: it leaves this machine
/// without TLS, or with a certificate that is not verified. A malformed URL is not exposed; [`connect`] refuses it.
pub fn is_exposed(url: &str) -> bool {
    match scheme_of(url).as_str() {
        // `rediss://` always verifies the certificate.
        "redis" | "redis+cluster" => backends::redis::is_exposed(url),
        "postgres" | "postgresql" => backends::postgres::is_exposed(url),
        #[cfg(feature = "dynamodb")]
        "dynamodb" => backends::dynamodb::is_exposed(url),
        _ => false,
    }
}

/// Brings the tables of the store up to date. [`connect`] does so, too.
pub fn migrate(url: &str) -> BoxFuture<'_, Result<Migrated, OpenError>> {
    Box::pin(async move {
        match scheme_of(url).as_str() {
            "postgres" | "postgresql" => backends::postgres::migrate(url).await,
            #[cfg(feature = "dynamodb")]
            "dynamodb" => backends::dynamodb::migrate(url, Billing::OnDemand).await,
            other => Err(OpenError::NoTables(other.to_owned())),
        }
    })
}

/// Parses a `dynamodb:` URL into the table and its server.
#[cfg(feature = "dynamodb")]
pub fn table_of(url: &str) -> Result<(String, String), String> {
    backends::dynamodb::table_of(url)
}

/// Creates the table that a `dynamodb:` URL names.
#[cfg(feature = "dynamodb")]
pub fn make_table(url: &str, billing: Billing) -> BoxFuture<'_, Result<Migrated, OpenError>> {
    Box::pin(async move { backends::dynamodb::migrate(url, billing).await })
}

/// The definition of the table that a `dynamodb:` URL names, for an administrator who creates it.
#[cfg(feature = "dynamodb")]
pub fn table_definition(url: &str, billing: Billing, form: Printed) -> Result<String, OpenError> {
    backends::dynamodb::print(url, billing, form)
}

/// Opens a store that needs no server: `memory:` or `embedded:DIR`.
pub fn open(url: &str) -> Result<Backend, OpenError> {
    let (store, name) = open_local(url, None)?;
    Ok(backend(store, name))
}

fn open_local(
    url: &str,
    keys: Option<&'static Keyring>,
) -> Result<(StoreAdapter, &'static str), OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => {
            Ok((StoreAdapter::new(Arc::new(backends::memory::Memory::new(keys))), "memory"))
        }
        Some(("embedded", "")) => Err(OpenError::NoDirectory),
        Some(("embedded", dir)) => {
            let embedded = backends::embedded::Embedded::open(dir.as_ref(), keys)?;
            Ok((StoreAdapter::new(Arc::new(embedded)), "embedded"))
        }
        Some(_) | None => Err(OpenError::Unknown(scheme_of(url))),
    }
}

fn backend(store: StoreAdapter, name: &'static str) -> Backend {
    let timing = store.timing();
    let store = Arc::new(store);
    Backend {
        timing,
        records: store.clone(),
        archive: store.clone(),
        adapter: store.clone(),
        store,
        notifier: Arc::new(LocalNotifier::new()),
        name,
        findings: Vec::new(),
    }
}

/// Errors show only the scheme of a URL, because the rest may contain a password.
fn scheme_of(url: &str) -> String {
    url.split(':').next().unwrap_or_default().chars().take(40).collect()
}
