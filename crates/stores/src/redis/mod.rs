//! `redis://`, `rediss://`, `redis+cluster://`: the store of many gateways. Rules run here on what is remembered of the
//! server's rows (`crate::remote`); the server compares and writes.
//!
//! - `address`, `link`: where it is and the way there; `server`: both, the scripts, and what is known of the data
//! - `layout`: the keys; `commit`, `commit.lua`: one commit; `writer`: the one task that makes them
//! - `replicas`: whether money may be spent on what was written
//! - `head`, `head.lua`, `restore`: noticing that writes were lost, and bringing back what is known here
//! - `bell`: hints across gateways; `examine`: what is looked at before a server is trusted

mod address;
mod bell;
mod commit;
mod examine;
mod head;
mod layout;
mod link;
mod replicas;
mod restore;
mod server;
mod writer;

use std::{fmt, sync::Arc, time::Duration};

use domain::ports::StoreError;
use redis::{RedisError, RedisResult};

use crate::{
    Backend, Finding, OpenError,
    adapter::StoreAdapter,
    remote::{Asks, BackendKind, Commit, Ended, Far},
};

use address::Address;
use commit::Reply;
use head::{Found, Head, Known, Opened};
use layout::Names;
use link::{Line, Link, Script};
use replicas::Replicas;
use server::{Server, said, unavailable};

pub use address::is_prefix;

pub(crate) const NAME: &str = "redis";
/// Its name for people.
const TITLE: &str = "Redis";

/// The server, and the one task that writes to it.
pub(crate) struct Redis {
    server: Arc<Server>,
    asks: Asks,
}

/// A server that is just starting is waited for so long.
const STARTING: Duration = Duration::from_secs(5);

// === connecting ===

/// A server that was looked at, and not yet opened.
struct Met {
    address: Address,
    names: Names,
    link: Link,
    findings: Vec<Finding>,
}

/// Opens the store at the URL.
pub(crate) async fn connect(url: &str) -> Result<Backend, OpenError> {
    let Met { address, names, mut link, findings } = meet(url).await?;
    crate::refuse_bad(TITLE, &findings)?;
    let away = |error: RedisError| unreachable(&address, &said(&error));
    let scripts = (
        load(&mut link, include_str!("commit.lua")).await.map_err(away)?,
        load(&mut link, include_str!("head.lua")).await.map_err(away)?,
    );
    let way = Line::new(address.clone());
    let writer = fastrand::u64(1..);
    let opened = Head::open(&way, &scripts.1, &names, writer, &Known::default()).await;
    let head = match opened.map_err(away)? {
        Opened::Head(head) => head,
        Opened::Other(found) => return Err(foreign(&address, found)),
        Opened::Odd => {
            return Err(unreachable(&address, "it gave an answer that makes no sense"));
        }
    };
    let replicas = examine::replication_of(&way, &names.head()).await.map_err(away)?;
    let doorbell = bell::start(address.clone(), Arc::new(Line::new(address)), &names);
    let server = Arc::new(Server::new(way, names, scripts, writer, head));
    let asks = writer::start(Arc::clone(&server), Replicas::new(replicas));
    let store = Arc::new(StoreAdapter::new(Arc::new(Redis { server, asks })));
    Ok(Backend {
        records: store.clone(),
        archive: store.clone(),
        store,
        doorbell: Arc::new(doorbell),
        name: NAME,
        findings,
    })
}

/// Looks at the server at the URL, and whether there is data, without opening it.
pub(crate) async fn examine(url: &str) -> Result<Vec<Finding>, OpenError> {
    let Met { address, names, mut link, mut findings } = meet(url).await?;
    let found = head::look(&mut link, &names).await;
    findings.push(match found.map_err(|error| unreachable(&address, &said(&error)))? {
        Found::Nothing => Finding::good("there is nothing yet; serve begins it"),
        Found::Ours => Finding::good("its data is of this release's format"),
        Found::Other(found) => return Err(foreign(&address, found)),
    });
    Ok(findings)
}

async fn meet(url: &str) -> Result<Met, OpenError> {
    let address = Address::parse(url).map_err(|why| OpenError::Address { store: TITLE, why })?;
    let away = |error: RedisError| unreachable(&address, &said(&error));
    let mut link = first_link(&address).await.map_err(away)?;
    let names = Names::new(&address.prefix);
    let findings = examine::examine(&mut link, &names.head()).await.map_err(away)?;
    Ok(Met { address, names, link, findings })
}

fn unreachable(address: &Address, why: &str) -> OpenError {
    OpenError::Unreachable { store: TITLE, server: address.shown(), why: why.to_owned() }
}

fn foreign(address: &Address, found: String) -> OpenError {
    let remedy = "?prefix=NAME to use keys of its own";
    OpenError::Foreign { store: TITLE, server: address.shown(), found, remedy }
}

/// Connects; a server that is loading its data or just starting gets a moment.
async fn first_link(address: &Address) -> RedisResult<Link> {
    let start = tokio::time::Instant::now();
    loop {
        let link = match Link::open(address, None).await {
            Ok(mut link) => link.ask(redis::cmd("EXISTS").arg("x")).await.map(|_| link),
            Err(error) => Err(error),
        };
        match link {
            Err(error) if is_starting(&error) && start.elapsed() < STARTING => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            link => return link,
        }
    }
}

fn is_starting(error: &RedisError) -> bool {
    error.code() == Some("LOADING")
}

async fn load(link: &mut Link, text: &'static str) -> RedisResult<Script> {
    let sha = link.ask(redis::cmd("SCRIPT").arg("LOAD").arg(text)).await?;
    Ok(Script { text, sha: redis::from_redis_value(sha)? })
}

// === impl Redis ===

impl Far for Redis {
    const KIND: BackendKind = BackendKind { name: NAME, most_bytes: 2 << 20, refuses: |_| None };

    fn asks(&self) -> &Asks {
        &self.asks
    }

    async fn look(&self, commit: &Commit) -> Result<Ended, StoreError> {
        self.server.check_settled()?;
        match self.server.look(commit).await? {
            Reply::Done { .. } => Ok(Ended::Done),
            Reply::Stale { corrections, .. } => Ok(Ended::Stale(corrections)),
            Reply::Refused | Reply::Lost => {
                // The writer finds it too, and starts over.
                self.asks.commit(Box::new(|_| true)).await?;
                Err(unavailable("it lost writes"))
            }
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}
