//! A store on a server, as a bench uses it: under a prefix or in a schema of its own, which the bench removes afterwards.

use std::fmt;

use solvegate::exit::{Exit, Failure};

use crate::probes::{Usage, postgres::PostgresProbe, redis::RedisProbe};

/// A store that no one else uses, and a probe of its server.
pub(crate) struct RemoteStore {
    url: String,
    probe: Probe,
}

enum Probe {
    Redis(RedisProbe),
    Postgres(Box<PostgresProbe>),
}

const EXPECTED: &str = "expected redis://HOST:PORT or postgres://HOST:PORT/DB: a bench uses plain connections to \
                        one server, without TLS or a cluster";

impl RemoteStore {
    /// A new, empty store on the server of this URL.
    pub(crate) async fn create(server: &str) -> Result<Self, Failure> {
        if server.contains('?') {
            let why = "a bench uses a prefix or schema of its own and plain connections: leave out the ? and everything after it";
            return Err(Failure::new(Exit::Usage, why));
        }
        let name = fastrand::u64(..);
        let option = if server.starts_with("postgres") { "schema=bench_" } else { "prefix=bench-" };
        Self::open(format!("{server}?{option}{name:016x}")).await
    }

    /// The store of a URL that [`Self::create`] made.
    pub(crate) async fn open(url: String) -> Result<Self, Failure> {
        let wrong = || Failure::new(Exit::Usage, EXPECTED);
        let (server, option) = url.split_once('?').ok_or_else(wrong)?;
        let (_, name) = option.split_once('=').ok_or_else(wrong)?;
        let (scheme, _) = server.split_once("://").ok_or_else(wrong)?;
        let unreachable = |error: &dyn fmt::Display| {
            Failure::new(
                Exit::Unreachable,
                format!("cannot connect to the store's server: {error}"),
            )
        };
        let probe = match scheme {
            "redis" => {
                let probe = RedisProbe::connect(server, name).await;
                Probe::Redis(probe.map_err(|error| unreachable(&error))?)
            }
            "postgres" | "postgresql" => {
                let probe = PostgresProbe::connect(server, name).await;
                Probe::Postgres(Box::new(probe.map_err(|error| unreachable(&error))?))
            }
            _ => return Err(wrong()),
        };
        Ok(Self { url, probe })
    }

    /// For benches that need PostgreSQL.
    pub(crate) fn postgres(&self) -> Result<&PostgresProbe, Failure> {
        match &self.probe {
            Probe::Postgres(probe) => Ok(probe),
            Probe::Redis(_) => Err(Failure::new(Exit::Usage, "expected postgres://HOST:PORT/DB")),
        }
    }

    /// What the server calls a unit of work, for figures.
    pub(crate) fn calls(&self) -> &'static str {
        match &self.probe {
            Probe::Redis(_) => "commands to Redis",
            Probe::Postgres(_) => "commits of PostgreSQL",
        }
    }

    /// Queries the server once, as cheaply as it can be done.
    pub(crate) async fn round_trip(&self) -> Result<(), Failure> {
        match &self.probe {
            Probe::Redis(probe) => probe.round_trip().await.map_err(Failure::of(Exit::Failed)),
            Probe::Postgres(probe) => probe.round_trip().await.map_err(Failure::of(Exit::Failed)),
        }
    }

    /// With the prefix or schema.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// What the server did and holds.
    pub(crate) async fn usage(&self) -> Result<Usage, Failure> {
        match &self.probe {
            Probe::Redis(probe) => probe.usage().await.map_err(Failure::of(Exit::Failed)),
            Probe::Postgres(probe) => probe.usage().await.map_err(Failure::of(Exit::Failed)),
        }
    }

    /// Removes everything.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        match &self.probe {
            Probe::Redis(probe) => probe.clear().await.map_err(Failure::of(Exit::Failed)),
            Probe::Postgres(probe) => probe.clear().await.map_err(Failure::of(Exit::Failed)),
        }
    }
}
