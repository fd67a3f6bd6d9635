//! A store on a server, as a bench uses it: under keys or in a schema of its own, which are removed afterwards.

use stores::{PostgresProbe, RedisProbe};

use solvegate::exit::{Exit, Failure};

/// A server and a corner nobody else has.
#[derive(Debug)]
pub(crate) struct Far {
    url: String,
    probe: Probe,
}

#[derive(Debug)]
enum Probe {
    Redis(RedisProbe),
    Postgres(PostgresProbe),
}

/// What a server has done and holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// Commands of a Redis, commits of a PostgreSQL.
    pub(crate) commands: u64,
    /// Bytes: of memory, or on disk.
    pub(crate) memory: u64,
}

impl Far {
    /// A corner of its own on the server of this URL.
    pub(crate) async fn open(url: &str) -> Result<Self, Failure> {
        if url.contains('?') {
            let why = "a bench uses keys or tables of its own and removes them: leave out what follows the ?";
            return Err(Failure::new(Exit::Usage, why));
        }
        let name = fastrand::u64(..);
        let corner = if url.starts_with("postgres") { "schema=bench_" } else { "prefix=bench-" };
        Self::at(format!("{url}?{corner}{name:016x}")).await
    }

    /// The corner this URL names.
    pub(crate) async fn at(url: String) -> Result<Self, Failure> {
        if url.starts_with("redis") {
            let probe = RedisProbe::connect(&url).await.map_err(Failure::of(Exit::Unreachable))?;
            return Ok(Self { url, probe: Probe::Redis(probe) });
        }
        if url.starts_with("postgres") {
            let probe = PostgresProbe::new(&url).map_err(Failure::of(Exit::Usage))?;
            return Ok(Self { url, probe: Probe::Postgres(probe) });
        }
        let why = "expected redis://, rediss://, redis+cluster:// or postgres://";
        Err(Failure::new(Exit::Usage, why))
    }

    /// The server as PostgreSQL, if it is one.
    pub(crate) fn postgres(&self) -> Option<&PostgresProbe> {
        match &self.probe {
            Probe::Postgres(probe) => Some(probe),
            Probe::Redis(_) => None,
        }
    }

    /// Asks it the least there is to ask, once.
    pub(crate) async fn round_trip(&self) -> Result<(), Failure> {
        match &self.probe {
            Probe::Redis(probe) => probe.round_trip().await,
            Probe::Postgres(probe) => probe.round_trip().await,
        }
        .map_err(Failure::of(Exit::Failed))
    }

    /// With the prefix or schema.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// What the server has done and holds.
    pub(crate) async fn usage(&self) -> Result<Use, Failure> {
        match &self.probe {
            Probe::Redis(probe) => {
                let told = probe.usage().await.map_err(Failure::of(Exit::Failed))?;
                Ok(Use { commands: told.commands, memory: told.memory })
            }
            Probe::Postgres(probe) => {
                let told = probe.usage().await.map_err(Failure::of(Exit::Failed))?;
                Ok(Use { commands: told.commits, memory: told.bytes })
            }
        }
    }

    /// Removes everything.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        match &self.probe {
            Probe::Redis(probe) => probe.clear().await,
            Probe::Postgres(probe) => probe.clear().await,
        }
        .map_err(Failure::of(Exit::Failed))
    }
}
