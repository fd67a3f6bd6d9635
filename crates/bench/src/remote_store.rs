//! A store on a server, under its own prefix or schema, which the bench removes afterwards.

use std::fmt;

use solvegate::exit::{Exit, Failure};

use crate::probes::{Usage, postgres::PostgresProbe, redis::RedisProbe};

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
    /// Creates an empty store on the server at this URL.
    pub(crate) async fn create(server: &str) -> Result<Self, Failure> {
        if server.contains('?') {
            let why = "a bench creates its own prefix or schema and uses plain connections: remove the ? and everything after it";
            return Err(Failure::new(Exit::Usage, why));
        }
        let name = fastrand::u64(..);
        let option = if server.starts_with("postgres") { "schema=bench_" } else { "prefix=bench-" };
        Self::open(format!("{server}?{option}{name:016x}")).await
    }

    /// Opens a store by the URL of one that [`Self::create`] made.
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

    /// The server's unit of work, as figures name it.
    pub(crate) fn calls(&self) -> &'static str {
        match &self.probe {
            Probe::Redis(_) => "commands to Redis",
            Probe::Postgres(_) => "commits of PostgreSQL",
        }
    }

    /// The cheapest query.
    pub(crate) async fn round_trip(&self) -> Result<(), Failure> {
        match &self.probe {
            Probe::Redis(probe) => probe.round_trip().await.map_err(Failure::of(Exit::Failed)),
            Probe::Postgres(probe) => probe.round_trip().await.map_err(Failure::of(Exit::Failed)),
        }
    }

    /// The URL with prefix or schema.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) async fn usage(&self) -> Result<Usage, Failure> {
        match &self.probe {
            Probe::Redis(probe) => probe.usage().await.map_err(Failure::of(Exit::Failed)),
            Probe::Postgres(probe) => probe.usage().await.map_err(Failure::of(Exit::Failed)),
        }
    }

    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        match &self.probe {
            Probe::Redis(probe) => probe.clear().await.map_err(Failure::of(Exit::Failed)),
            Probe::Postgres(probe) => probe.clear().await.map_err(Failure::of(Exit::Failed)),
        }
    }
}
