//! `dynamodb:`: the store of many gateways on one DynamoDB table. Rules run here on what is remembered of the rows
//! (`crate::remote`). A decision is one item: the next of a log, written if nobody else has written it.
//!
//! - `address`, `link`, `failure`: where the table is, the way there, and what goes wrong on it; `layout`: its items; `apart`: what is too large for one
//! - `log`: the commits as this process follows them; `view`: what is true, from sheets and log; `known`: what of it is known here
//! - `writer`: the one task that commits; `filer`: writing the log's changes into sheets; `bell`: hints from other gateways
//! - `definition`: the table itself, made or printed; `examine`: what is looked at before it is trusted;
//!   `probe`: for tests and benches

mod address;
mod apart;
mod bell;
mod definition;
mod examine;
mod failure;
mod filer;
mod known;
mod layout;
mod link;
mod log;
mod probe;
mod view;
mod writer;

use std::{fmt, sync::Arc};

use domain::ports::StoreError;

use crate::{
    Backend, Finding, LocalDoorbell, Migrated, OpenError, Weight,
    adapter::StoreAdapter,
    remote::{Asks, BackendKind, Commit, Ended, Far},
};

use address::Address;
use failure::{Failure, Trouble};
use layout::{
    FILED, FORMAT, Head, INCARNATION, Item, THIS_FORMAT, head_key, number, read_format, read_head,
};
use link::{Condition, Link, Written};
use log::Log;
use view::Needs;

pub use definition::{Billing, Printed};
pub use link::DynamoDbUse;
pub use probe::{DynamoDbProbe, Inventory};

pub(crate) const NAME: &str = "dynamodb";
/// Its name for people.
pub(crate) const TITLE: &str = "DynamoDB";

/// The log, and the one task that writes to it.
pub(crate) struct DynamoDb {
    log: Arc<Log>,
    asks: Asks,
}

// === connecting ===

/// Opens the store at the URL.
pub(crate) async fn connect(url: &str) -> Result<Backend, OpenError> {
    open(url).await.map(|(backend, _)| backend)
}

async fn open(url: &str) -> Result<(Backend, Arc<Log>), OpenError> {
    let link = Link::open(parse(url)?).await;
    let findings = examine::examine(&link).await.map_err(|failure| away(&link, &failure))?;
    if let Some(bad) = findings.iter().find(|finding| finding.weight == Weight::Bad) {
        return Err(OpenError::Unsafe {
            store: TITLE,
            what: bad.what.clone(),
            remedy: bad.remedy.clone().unwrap_or_default(),
        });
    }
    let head = head(&link).await?;
    let doorbell = Arc::new(LocalDoorbell::new());
    let log = Arc::new(Log::new(link, &head, Arc::clone(&doorbell)));
    log.read_on().await.map_err(|error| OpenError::Unreachable {
        store: TITLE,
        server: log.link.address.shown(),
        why: error.to_string(),
    })?;
    filer::start(&log);
    bell::start(&log);
    let asks = writer::start(Arc::clone(&log));
    let store = Arc::new(StoreAdapter::new(Arc::new(DynamoDb { log: Arc::clone(&log), asks })));
    let backend = Backend {
        records: store.clone(),
        archive: store.clone(),
        store,
        doorbell,
        name: NAME,
        findings,
    };
    Ok((backend, log))
}

/// The head, which the first to come writes.
async fn head(link: &Link) -> Result<Head, OpenError> {
    let first = Head { incarnation: fastrand::u64(1..), filed: 0, filer: None };
    let mut item: Item = head_key();
    item.insert(FORMAT.into(), number(THIS_FORMAT));
    item.insert(INCARNATION.into(), number(first.incarnation));
    item.insert(FILED.into(), number(first.filed));
    let failed = |failure| away(link, &failure);
    let found = match link.get(head_key()).await.map_err(failed)? {
        Some(found) => found,
        None => match link.put(item, Condition::is_new()).await.map_err(failed)? {
            Written::Done => return Ok(first),
            Written::Refused(found) => found.unwrap_or_default(),
        },
    };
    let format = read_format(&found);
    match read_head(&found).ok().filter(|_| format == Some(THIS_FORMAT)) {
        Some(head) => Ok(head),
        None => Err(OpenError::Foreign {
            store: TITLE,
            server: link.address.shown(),
            found: format.map_or_else(|| "unknown".to_owned(), |format| format.to_string()),
            remedy: "another table's name",
        }),
    }
}

/// Looks at the table at the URL without changing anything.
pub(crate) async fn examine(url: &str) -> Result<Vec<Finding>, OpenError> {
    let link = Link::open(parse(url)?).await;
    examine::examine(&link).await.map_err(|failure| away(&link, &failure))
}

/// The table a URL names, and where it is.
pub(crate) fn table_of(url: &str) -> Result<(String, String), String> {
    Address::parse(url).map(|address| (address.table.clone(), address.shown()))
}

/// Makes the table at the URL, if it is not there.
pub(crate) async fn migrate(url: &str, billing: Billing) -> Result<Migrated, OpenError> {
    let link = Link::open(parse(url)?).await;
    definition::make(&link, billing).await.map_err(|failure| away(&link, &failure))
}

/// The definition of the table a URL names, for whoever makes it.
pub(crate) fn print(url: &str, billing: Billing, form: Printed) -> Result<String, OpenError> {
    Ok(definition::print(&parse(url)?.table, billing, form))
}

fn parse(url: &str) -> Result<Address, OpenError> {
    Address::parse(url).map_err(|why| OpenError::Address { store: TITLE, why })
}

fn away(link: &Link, failure: &Failure) -> OpenError {
    let server = link.address.shown();
    if failure.sort == Trouble::NoTable {
        return OpenError::NoTable { server, table: link.table().to_owned() };
    }
    OpenError::Unreachable { store: TITLE, server, why: failure.to_string() }
}

// === impl DynamoDb ===

impl Far for DynamoDb {
    // A commit that fits into an item needs no others.
    const KIND: BackendKind = BackendKind { name: NAME, most_bytes: 96 << 10, refuses: |_| None };

    fn asks(&self) -> &Asks {
        &self.asks
    }

    async fn look(&self, commit: &Commit) -> Result<Ended, StoreError> {
        self.log.read_on().await?;
        let view = self.log.view(&Needs::of(&commit.assumed)).await?;
        view.compare(&self.log, &commit.assumed).await
    }
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDb").finish_non_exhaustive()
    }
}
