//! Checks before a server is trusted with money: its version, its role, durability, replication, latency, and free connections.

use std::time::Duration;

use domain::{ports::ServerTime, time::Timestamp};
use tokio_postgres::Row;

use crate::{Finding, backends::server::measure_latency};

use super::{
    READERS,
    connection::{Pool, QueryError},
    sql::Statement,
};

#[derive(Default)]
struct ServerSettings {
    version: String,
    number: i64,
    is_replica: bool,
    is_read_only: bool,
    encoding: String,
    fsync: String,
    full_pages: String,
    durability: String,
    replicas: i64,
    synchronous: String,
    connections: i64,
    most_connections: i64,
}

/// A role without privileges sees `NULL` as the type of other roles' connections.
const SETTINGS: &str = "SELECT current_setting('server_version'), \
    current_setting('server_version_num')::bigint, pg_is_in_recovery(), \
    current_setting('default_transaction_read_only') = 'on', current_setting('server_encoding'), \
    current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), \
    (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'), \
    (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL \
     AND coalesce(backend_type, 'client backend') = 'client backend'), \
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint";

const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

pub(super) async fn examine(pool: &Pool) -> Result<Vec<Finding>, QueryError> {
    let rows = pool.query(Statement::new(SETTINGS)).await?;
    let settings = rows.first().map(ServerSettings::read).transpose()?;
    let Some(settings) = settings else {
        return Err(QueryError::unreachable("it returned no settings"));
    };
    let latency = measure_latency(3, "two", || pool.query(Statement::new("SELECT 1"))).await?;
    let mut findings = vec![version(&settings), latency, role(&settings), encoding(&settings)];
    findings.extend([
        durability(&settings),
        replication(&settings),
        free_connections(&settings),
        privacy(pool),
    ]);
    Ok(findings)
}

/// What the server's clock shows.
pub(super) async fn server_time(pool: &Pool) -> Result<ServerTime, QueryError> {
    let rows = pool.query(Statement::new(NOW)).await?;
    let millis = rows.first().map(|row| row.try_get::<_, i64>(0)).transpose()?;
    let millis = millis.and_then(|millis| u64::try_from(millis).ok());
    let millis = millis.ok_or_else(|| QueryError::unreachable("it returned no time"))?;
    Ok(ServerTime { at: Timestamp::from_millis(millis), precision: Duration::ZERO })
}

impl ServerSettings {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            version: row.try_get(0)?,
            number: row.try_get(1)?,
            is_replica: row.try_get(2)?,
            is_read_only: row.try_get(3)?,
            encoding: row.try_get(4)?,
            fsync: row.try_get(5)?,
            full_pages: row.try_get(6)?,
            durability: row.try_get(7)?,
            replicas: row.try_get(8)?,
            synchronous: row.try_get(9)?,
            connections: row.try_get(10)?,
            most_connections: row.try_get(11)?,
        })
    }
}

fn version(settings: &ServerSettings) -> Finding {
    let what = format!("version {}", settings.version);
    if settings.number < 130_000 {
        return Finding::bad(what, "use PostgreSQL 13 or later");
    }
    Finding::good(what)
}

fn role(settings: &ServerSettings) -> Finding {
    if settings.is_replica {
        return Finding::bad(
            "it is a replica (pg_is_in_recovery): it accepts no writes",
            "give the address of the primary",
        );
    }
    if settings.is_read_only {
        return Finding::risky(
            "default_transaction_read_only is on; commits override it with READ WRITE",
            "make sure that this is the right server",
        );
    }
    Finding::good("it is the primary")
}

fn encoding(settings: &ServerSettings) -> Finding {
    if settings.encoding == "UTF8" {
        return Finding::good("its encoding is UTF8");
    }
    Finding::bad(
        format!("its encoding is {}: it cannot store every name", settings.encoding),
        "create a database with ENCODING 'UTF8'",
    )
}

fn durability(settings: &ServerSettings) -> Finding {
    if settings.fsync != "on" {
        return Finding::risky(
            "fsync is off: a power cut can lose or damage everything, and solves in flight may be paid again",
            "fsync = on in postgresql.conf",
        );
    }
    if settings.full_pages != "on" {
        return Finding::risky(
            "full_page_writes is off: a power cut can damage tables",
            "full_page_writes = on in postgresql.conf, unless the disk never writes half a page",
        );
    }
    match settings.durability.as_str() {
        "on" | "remote_apply" => {
            Finding::good("acknowledged commits are on its disk (fsync, synchronous_commit)")
        }
        weaker => Finding::good(format!(
            "acknowledged commits are on its disk (fsync; synchronous_commit is {weaker} there and on in every decision)"
        )),
    }
}

fn replication(settings: &ServerSettings) -> Finding {
    match (settings.replicas, settings.synchronous.is_empty()) {
        (0, _) => Finding::good("no replicas: there is no failover that could lose commits"),
        (replicas, false) => {
            Finding::good(format!("{replicas} replicas; commits wait for {}", settings.synchronous))
        }
        (replicas, true) => Finding::risky(
            format!(
                "{replicas} replicas, and commits wait for none of them: a replica that takes over may lack the last commits, and their solves may be paid again"
            ),
            "name a replica in synchronous_standby_names",
        ),
    }
}

fn free_connections(settings: &ServerSettings) -> Finding {
    let needed = i64::try_from(READERS).unwrap_or(i64::MAX).saturating_add(3);
    let left = settings.most_connections - settings.connections;
    let what =
        format!("{} of {} connections are in use", settings.connections, settings.most_connections);
    if left < needed {
        return Finding::risky(
            format!("{what}; a gateway needs up to {needed} more"),
            "raise max_connections, or use a pooler in transaction mode",
        );
    }
    Finding::good(what)
}

fn privacy(pool: &Pool) -> Finding {
    let address = &pool.address;
    if address.is_private() {
        return Finding::good(
            "the connection is private (this machine, or TLS with a verified certificate)",
        );
    }
    if address.may_be_plain() {
        return Finding::risky(
            "the connection may be unencrypted: others can read tokens and proxies on it",
            "add ?sslmode=verify-full to the URL",
        );
    }
    Finding::risky(
        "the connection is encrypted, but the server's certificate is not verified (sslmode=require)",
        "add ?sslmode=verify-full, with &sslrootcert=FILE for a private certificate authority",
    )
}

#[cfg(test)]
mod tests {
    use crate::Weight;

    use super::*;

    #[test]
    fn a_server_before_13_is_refused() {
        for (number, weight) in [
            (90_624, Weight::Bad),
            (120_022, Weight::Bad),
            (130_000, Weight::Good),
            (170_002, Weight::Good),
        ] {
            let settings = ServerSettings {
                number,
                version: "as it is".to_owned(),
                ..ServerSettings::default()
            };
            let found = version(&settings);
            assert_eq!((found.weight, found.what.as_str()), (weight, "version as it is"));
        }
    }

    #[test]
    fn a_replica_is_refused_and_a_database_that_is_read_only_by_default_is_not() {
        let replica =
            ServerSettings { is_replica: true, is_read_only: true, ..ServerSettings::default() };
        assert_eq!(role(&replica).weight, Weight::Bad);
        assert_eq!(role(&ServerSettings { is_replica: false, ..replica }).weight, Weight::Risky);
        assert_eq!(role(&ServerSettings::default()).weight, Weight::Good);
    }
}
