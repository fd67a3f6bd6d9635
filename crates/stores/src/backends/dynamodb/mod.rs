//! `dynamodb:`: a store shared by many gateways on one DynamoDB table. Decisions run here on cached rows (`crate::optimistic`). A
//! commit is one item: the next slot of a log, written if no other gateway has written it.
//!
//! - `address`, `connection`, `error`: the URL, the requests, and their errors; `layout`: the items
//! - `log`: the commits as this process follows them; `view`: the current rows from segments and log; `cached_ranges`: which of
//!   them this process has cached
//! - `commit`: the commit protocol; `overflow`: large values; `compactor`, `merge`: merge the log into segments; `notify`: notifications
//!   from other gateways
//! - `definition`: creates or prints the table; `health`: checks before it is trusted; `probe`: for tests and benchmarks

mod address;
mod cached_ranges;
mod commit;
mod compactor;
mod connection;
mod definition;
mod error;
mod health;
mod layout;
mod log;
mod merge;
mod notify;
mod overflow;
mod probe;
mod view;

use std::sync::Arc;

use domain::ports::{Clock, StoreError};

use crate::{
    Backend, Finding, LocalNotifier, Migrated, OpenError,
    backends::server::ServerKind,
    optimistic::{BackendKind, RemoteBackend, RowCache},
    schema::{codec::Codec, seal::Keyring},
};

use address::DynamoDbAddress;
use commit::DynamoDbCommitter;
use connection::{Condition, TableClient, WriteResult};
use error::{RequestError, RequestErrorKind};
use layout::{
    COMPACTED, FORMAT, INCARNATION, Item, THIS_FORMAT, TableMeta, meta_key, number, read_format,
    read_meta,
};
use log::Log;

pub use connection::DynamoDbUse;
pub use definition::{Billing, Printed};
pub use probe::{DynamoDbProbe, Inventory};

pub(crate) const NAME: &str = "dynamodb";
const SERVER: ServerKind = ServerKind { name: NAME, title: "DynamoDB" };

// Up to this size, a commit fits into one item.
const KIND: BackendKind =
    BackendKind { codec: Codec::plain(NAME), max_bytes: 96 << 10, refuses: |_| None };

pub(crate) async fn connect(
    url: &str,
    keys: Option<&'static Keyring>,
) -> Result<Backend, OpenError> {
    open(url, keys).await.map(|(backend, _)| backend)
}

async fn open(url: &str, keys: Option<&'static Keyring>) -> Result<(Backend, Arc<Log>), OpenError> {
    let client = TableClient::open(parse(url)?).await;
    let findings = health::examine(&client).await.map_err(|error| unreachable(&client, &error))?;
    SERVER.refuse_unsafe(&findings)?;
    let meta = open_meta(&client).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let log = Arc::new(Log::new(client, &meta, Arc::clone(&notifier)));
    log.catch_up().await.map_err(|error| {
        if matches!(error, StoreError::Corrupt { .. }) {
            return OpenError::Failed(error);
        }
        SERVER.unreachable(log.client.address.to_string(), error)
    })?;
    compactor::start(&log);
    notify::start(&log);
    let committer = DynamoDbCommitter::new(Arc::clone(&log));
    let cache = RowCache::keeping_all();
    let driver = RemoteBackend::start(KIND.sealing_with(keys), Arc::clone(&log), committer, cache);
    Ok((SERVER.opened(driver, notifier, findings, keys).await?, log))
}

/// Reads the metadata item, or writes it in a new table.
async fn open_meta(client: &TableClient) -> Result<TableMeta, OpenError> {
    let first = TableMeta { incarnation: fastrand::u64(1..), compacted: 0, compactor: None };
    let mut item: Item = meta_key();
    item.insert(FORMAT.into(), number(THIS_FORMAT));
    item.insert(INCARNATION.into(), number(first.incarnation));
    item.insert(COMPACTED.into(), number(first.compacted));
    let failed = |error| unreachable(client, &error);
    let found = match client.get(meta_key()).await.map_err(failed)? {
        Some(found) => found,
        None => match client.put(item, Condition::is_new()).await.map_err(failed)? {
            WriteResult::Done => return Ok(first),
            WriteResult::ConditionFailed(found) => found.unwrap_or_default(),
        },
    };
    let format = read_format(&found);
    read_meta(&found).ok().filter(|_| format == Some(THIS_FORMAT)).ok_or_else(|| {
        let format = format.map_or_else(|| "unknown".to_owned(), |format| format.to_string());
        SERVER.foreign(client.address.to_string(), format, "another table's name")
    })
}

/// Examines the table at the URL without changing anything.
pub(crate) async fn examine(url: &str, clock: &dyn Clock) -> Result<Vec<Finding>, OpenError> {
    let client = TableClient::open(parse(url)?).await;
    let failed = |error: RequestError| unreachable(&client, &error);
    let mut findings = health::examine(&client).await.map_err(failed)?;
    findings.push(Finding::clock(clock, health::server_time(&client)).await.map_err(failed)?);
    Ok(findings)
}

/// See [`crate::is_exposed`].
pub(crate) fn is_exposed(url: &str) -> bool {
    DynamoDbAddress::parse(url).is_ok_and(|address| address.is_unencrypted())
}

pub(crate) fn table_of(url: &str) -> Result<(String, String), String> {
    DynamoDbAddress::parse(url).map(|address| (address.table.clone(), address.to_string()))
}

/// Creates the table at the URL, if it does not exist.
pub(crate) async fn migrate(url: &str, billing: Billing) -> Result<Migrated, OpenError> {
    let client = TableClient::open(parse(url)?).await;
    definition::create(&client, billing).await.map_err(|error| unreachable(&client, &error))
}

/// The definition of the table of a URL, for administrators who create it themselves.
pub(crate) fn print(url: &str, billing: Billing, form: Printed) -> Result<String, OpenError> {
    Ok(definition::print(&parse(url)?.table, billing, form))
}

fn parse(url: &str) -> Result<DynamoDbAddress, OpenError> {
    DynamoDbAddress::parse(url).map_err(|why| SERVER.bad_address(why))
}

fn unreachable(client: &TableClient, error: &RequestError) -> OpenError {
    let server = client.address.to_string();
    if error.kind == RequestErrorKind::NoTable {
        return OpenError::NoTable { server, table: client.table().to_owned() };
    }
    // The SDK has no kind of its own for this, and it is the usual first mistake.
    let is_unsigned = ["loading credentials", "credential provider was not enabled"];
    if is_unsigned.iter().any(|words| error.message.contains(words)) {
        let why = error.message.lines().next().unwrap_or_default().to_owned();
        return OpenError::NoCredentials { server, why };
    }
    SERVER.unreachable(server, error)
}
