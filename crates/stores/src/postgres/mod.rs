//! `postgres://`, `postgresql://`: the store of many gateways on the database a team already has. Rules run here on what is
//! remembered of the server's rows (`crate::remote`); the server compares and writes in one short transaction.
//!
//! - `address`, `tls`, `link`: where it is and the way there
//! - `layout`, `cells`, `shown`: tables, columns, and what stands in them; `sql`: the statements; `migrate`: making the tables
//! - `server`, `asked`: one commit, one look; `writer`: the one task that makes commits; `history`: the ledger's partitions
//! - `bell`: hints across gateways; `examine`: what is looked at before a server is trusted

mod address;
mod asked;
mod bell;
mod cells;
mod examine;
mod history;
mod layout;
mod link;
mod migrate;
mod server;
mod shown;
mod sql;
mod tls;
mod writer;

use std::{fmt, sync::Arc, time::Duration};

use domain::ports::StoreError;

use crate::{
    Backend, Finding, OpenError, Weight,
    adapter::StoreAdapter,
    remote::{Asks, BackendKind, Commit, Ended, Far},
};

use address::Address;
use layout::Sheet;
use link::{Failure, Line, Trouble};
use server::Server;
use tls::Secure;

pub use address::is_schema;
pub use migrate::{Migrated, migrations_sql};

pub(crate) const NAME: &str = "postgres";
/// Its name for people.
pub(crate) const TITLE: &str = "PostgreSQL";

/// The server, and the one task that writes to it.
pub(crate) struct Postgres {
    server: Arc<Server>,
    asks: Asks,
}

/// Connections for looks. With the one for decisions and the two for hints a gateway has nine at most.
const READERS: usize = 6;
/// A server that is just starting is waited for so long.
const STARTING: Duration = Duration::from_secs(5);

// === connecting ===

/// Opens the store at the URL.
pub(crate) async fn connect(url: &str) -> Result<Backend, OpenError> {
    let (address, secure) = parse(url)?;
    let (reading, mut findings) = meet(&address, &secure).await?;
    crate::refuse_bad(TITLE, &findings)?;
    migrate::migrate(&reading).await?;
    findings.extend(rights(&reading).await?);
    let (doorbell, heard) = bell::start(&address, &secure).await?;
    findings.push(heard);
    let server = Arc::new(Server::new(Line::new(address, secure, 1), reading));
    history::start(Arc::downgrade(&server));
    let asks = writer::start(Arc::clone(&server));
    let store = Arc::new(StoreAdapter::new(Arc::new(Postgres { server, asks })));
    Ok(Backend {
        records: store.clone(),
        archive: store.clone(),
        store,
        doorbell: Arc::new(doorbell),
        name: NAME,
        findings,
    })
}

/// Looks at the server at the URL and at its tables, without making or changing any.
pub(crate) async fn examine(url: &str) -> Result<Vec<Finding>, OpenError> {
    let (address, secure) = parse(url)?;
    let (line, mut findings) = meet(&address, &secure).await?;
    if findings.iter().any(|finding| finding.weight == Weight::Bad) {
        return Ok(findings);
    }
    findings.push(migrate::look(&line).await?);
    findings.extend(rights(&line).await?);
    let (_doorbell, heard) = bell::start(&address, &secure).await?;
    findings.push(heard);
    Ok(findings)
}

/// What this role may not do.
async fn rights(line: &Line) -> Result<Option<Finding>, OpenError> {
    history::rights(line).await.map_err(|failure| unreachable(&line.address, &failure))
}

/// Connects, and sees whether the server can be trusted.
async fn meet(address: &Address, secure: &Secure) -> Result<(Line, Vec<Finding>), OpenError> {
    let line = Line::new(address.clone(), secure.clone(), READERS);
    let away = |failure: Failure| unreachable(address, &failure);
    wait_for_start(&line).await.map_err(away)?;
    let findings = examine::examine(&line).await.map_err(away)?;
    Ok((line, findings))
}

/// Brings the schema at the URL up to date.
pub(crate) async fn migrate(url: &str) -> Result<Migrated, OpenError> {
    let (address, secure) = parse(url)?;
    let line = Line::new(address.clone(), secure, 1);
    wait_for_start(&line).await.map_err(|failure| unreachable(&address, &failure))?;
    migrate::migrate(&line).await
}

fn parse(url: &str) -> Result<(Address, Secure), OpenError> {
    let address = Address::parse(url).map_err(|why| OpenError::Address { store: TITLE, why })?;
    let secure = secure(&address)?;
    Ok((address, secure))
}

fn secure(address: &Address) -> Result<Secure, OpenError> {
    Secure::new(&address.tls).map_err(|why| OpenError::Address { store: TITLE, why })
}

/// Connects; a server that is just starting gets a moment.
async fn wait_for_start(line: &Line) -> Result<(), Failure> {
    let start = tokio::time::Instant::now();
    loop {
        match line.seat().await {
            Ok(seat) => {
                seat.give_back();
                return Ok(());
            }
            Err(failure) if failure.sort == Trouble::Starting && start.elapsed() < STARTING => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn unreachable(address: &Address, failure: &Failure) -> OpenError {
    OpenError::Unreachable { store: TITLE, server: address.shown(), why: failure.why.clone() }
}

// === impl Postgres ===

impl Far for Postgres {
    const KIND: BackendKind = BackendKind { name: NAME, most_bytes: 2 << 20, refuses };

    fn asks(&self) -> &Asks {
        &self.asks
    }

    async fn look(&self, commit: &Commit) -> Result<Ended, StoreError> {
        self.server.look(&commit.assumed).await
    }
}

fn refuses(key: &[u8]) -> Option<&'static str> {
    Sheet::of(*key.first()?).refuses(key)
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
