//! Plain connections to the PostgreSQL behind a store.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use tokio_postgres::{Client, Config, Error, NoTls, config::SslMode};

use super::Usage;

pub(crate) struct PostgresProbe {
    config: Config,
    schema: String,
    permits: Semaphore,
    idle: Mutex<Vec<Client>>,
}

/// As many connections as a gateway has for reading, so that the ceiling is comparable.
const CONNECTIONS: usize = 6;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl PostgresProbe {
    /// Connects to `postgres://[user[:password]@]host[:port][/database]`.
    pub(crate) async fn connect(server: &str, schema: &str) -> Result<Self, Error> {
        let mut config: Config = server.parse()?;
        config.ssl_mode(SslMode::Disable).connect_timeout(CONNECT_TIMEOUT);
        let probe = Self {
            config,
            schema: schema.to_owned(),
            permits: Semaphore::new(CONNECTIONS),
            idle: Mutex::default(),
        };
        let first = probe.client().await?;
        probe.idle().push(first);
        Ok(probe)
    }

    pub(crate) async fn round_trip(&self) -> Result<(), Error> {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let idle = self.idle().pop();
        let client = match idle {
            Some(client) => client,
            None => self.client().await?,
        };
        client.query_typed("SELECT 1", &[]).await?;
        self.idle().push(client);
        Ok(())
    }

    /// Commits of all gateways, and the size of tables and indexes.
    pub(crate) async fn usage(&self) -> Result<Usage, Error> {
        let schema = &self.schema;
        let statement = format!(
            "SELECT (SELECT commits FROM \"{schema}\".head), \
             (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class \
              WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r')"
        );
        let row = self.client().await?.query_typed_one(&statement, &[]).await?;
        let number = |at: usize| row.try_get::<_, i64>(at).map(|n| u64::try_from(n).unwrap_or(0));
        Ok(Usage { calls: number(0)?, bytes: number(1)? })
    }

    pub(crate) async fn analyze(&self) -> Result<(), Error> {
        self.client().await?.batch_execute("ANALYZE").await
    }

    /// The number of durable one-row commits on one connection in this time: the ceiling for writers that take turns.
    pub(crate) async fn bare_commits(&self, length: Duration) -> Result<u64, Error> {
        let client = self.client().await?;
        let table = format!("\"{}\".bare", self.schema);
        let create = format!(
            "SET synchronous_commit = on; DROP TABLE IF EXISTS {table}; \
             CREATE TABLE {table} (made bigint NOT NULL); INSERT INTO {table} VALUES (0)"
        );
        client.batch_execute(&create).await?;
        let update = format!("UPDATE {table} SET made = made + 1");
        let end = now() + length;
        let mut commits = 0;
        while now() < end {
            client.execute_typed(&update, &[]).await?;
            commits += 1;
        }
        Ok(commits)
    }

    pub(crate) async fn clear(&self) -> Result<(), Error> {
        let statement = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.schema);
        self.client().await?.batch_execute(&statement).await
    }

    #[expect(clippy::disallowed_methods, reason = "the task ends with its client")]
    async fn client(&self) -> Result<Client, Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "connection to PostgreSQL failed");
            }
        });
        Ok(client)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}
