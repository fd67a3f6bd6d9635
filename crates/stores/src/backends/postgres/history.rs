//! The partitions of the ledger. New entries go to the newest partition. On a new day it is closed after its last entry and another
//! one is created, so each partition holds about a day. A closed partition that retention has emptied is dropped, which frees its
//! space at once.
//!
//! Entries have numbers, not dates, so a partition is a range of numbers. Its name contains its first day.

use std::{sync::Weak, time::Duration};

use tokio_postgres::{Client, types::Type};

use crate::Finding;

use super::{
    connection::{Pool, QueryError, QueryErrorKind},
    migrate::lock_of,
    server::PostgresServer,
    sql::Statement,
};

/// How often each gateway checks. One of them does the work.
const INTERVAL: Duration = Duration::from_secs(600);

/// Maintenance can wait: if it cannot get a lock soon, it tries again the next time.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '1s'; \
    SET LOCAL statement_timeout = '20s'; SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// All commits wait for this lock.
const LOCK_WRITERS: &str = "SELECT commits FROM head FOR UPDATE";

/// Only the owner of a table may create and drop its partitions.
const OWNS: &str = "SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class \
    WHERE oid = pg_catalog.to_regclass(pg_catalog.quote_ident($1) || '.pages')";

/// A finding if this role may not maintain the partitions.
pub(super) async fn missing_rights(pool: &Pool) -> Result<Option<Finding>, QueryError> {
    let rows = pool.query(Statement::new(OWNS).text(&pool.address.schema)).await?;
    let owns = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok((owns == Some(false)).then(|| {
        Finding::risky(
            "this role does not own the tables: it can read and write, but cannot create or drop partitions of the ledger",
            "run a gateway as their owner from time to time, or the newest partition of the ledger grows for ever",
        )
    }))
}

/// Starts the maintenance task, which ends with the store.
pub(super) fn start(server: Weak<PostgresServer>) {
    tokio::spawn(async move {
        while let Some(server) = server.upgrade() {
            match maintain(&server).await {
                Err(error) if error.kind == QueryErrorKind::Refused => {
                    tracing::warn!(error = %error, "ledger partition maintenance failed");
                }
                Err(error) => {
                    tracing::debug!(error = %error, "ledger partition maintenance deferred");
                }
                Ok(()) => {}
            }
            drop(server);
            tokio::time::sleep(INTERVAL).await;
        }
    });
}

/// Closes the newest partition after its day, drops empty ones, and deletes the sequence numbers of gateways that are long gone.
pub(super) async fn maintain(server: &PostgresServer) -> Result<(), QueryError> {
    let client = server.reader_pool.dedicated().await?;
    let schema = server.schema();
    client.batch_execute(BEGIN).await?;
    client.batch_execute(&format!("SET LOCAL search_path TO \"{schema}\"")).await?;
    let lock = lock_of("partitions", schema);
    let row = client
        .query_typed_one("SELECT pg_try_advisory_xact_lock($1)", &[(&lock, Type::INT8)])
        .await?;
    if row.try_get(0)? {
        let owns = client.query_typed_one(OWNS, &[(&schema, Type::TEXT)]).await?.try_get(0)?;
        if owns {
            roll(&client).await?;
            drop_empty(&client).await?;
        }
        client.batch_execute("DELETE FROM turns WHERE at < now() - interval '30 days'").await?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(())
}

/// Closes the newest partition if it has entries and began on an earlier day.
async fn roll(client: &Client) -> Result<(), QueryError> {
    let row = client
        .query_typed_one(
            "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD'), \
             coalesce(obj_description('pages_newest'::regclass, 'pg_class'), ''), \
             (SELECT max(seq) FROM pages_newest), (SELECT min(seq) FROM pages_newest)",
            &[],
        )
        .await?;
    let (today, first_day): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let (last, first): (Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
    let Some((last, first)) = last.zip(first) else {
        return set_first_day(client, &today).await;
    };
    // No day is recorded yet, or an administrator wrote another comment.
    if first_day.len() != 8 || !first_day.bytes().all(|byte| byte.is_ascii_digit()) {
        return set_first_day(client, &today).await;
    }
    if first_day == today {
        return Ok(());
    }
    // Block all commits, so that the last entry stays the last one.
    client.batch_execute(LOCK_WRITERS).await?;
    let row = client.query_typed_one("SELECT max(seq) FROM pages_newest", &[]).await?;
    let last = row.try_get::<_, Option<i64>>(0)?.unwrap_or(last);
    let from: String = client
        .query_typed_one(
            "SELECT coalesce(substring(pg_get_expr(relpartbound, oid) FROM 'FROM \\(''?(\\w+)''?\\)'), 'MINVALUE') \
             FROM pg_class WHERE oid = 'pages_newest'::regclass",
            &[],
        )
        .await?
        .try_get(0)?;
    let closed = format!("pages_{first_day}_{first}");
    let next = last + 1;
    client
        .batch_execute(&format!(
            "ALTER TABLE pages DETACH PARTITION pages_newest; \
             ALTER TABLE pages_newest RENAME TO {closed}; \
             ALTER INDEX pages_newest_pkey RENAME TO {closed}_pkey; \
             ALTER TABLE pages ATTACH PARTITION {closed} FOR VALUES FROM ({from}) TO ({next}); \
             CREATE TABLE pages_newest PARTITION OF pages FOR VALUES FROM ({next}) TO (MAXVALUE)"
        ))
        .await?;
    tracing::info!(partition = closed, up_to = last, "closed ledger partition");
    set_first_day(client, &today).await
}

async fn set_first_day(client: &Client, day: &str) -> Result<(), QueryError> {
    // The day comes from the server and has eight digits, so it needs no escaping.
    Ok(client.batch_execute(&format!("COMMENT ON TABLE pages_newest IS '{day}'")).await?)
}

/// Drops closed partitions that are empty.
async fn drop_empty(client: &Client) -> Result<(), QueryError> {
    let closed = client
        .query_typed(
            "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
             WHERE i.inhparent = 'pages'::regclass AND c.relname <> 'pages_newest'",
            &[],
        )
        .await?;
    for row in closed {
        let name: String = row.try_get(0)?;
        let any = client.query_typed(&format!("SELECT 1 FROM \"{name}\" LIMIT 1"), &[]).await?;
        if any.is_empty() {
            client.batch_execute(&format!("{LOCK_WRITERS}; DROP TABLE \"{name}\"")).await?;
            tracing::info!(partition = name, "dropped empty ledger partition");
        }
    }
    Ok(())
}
