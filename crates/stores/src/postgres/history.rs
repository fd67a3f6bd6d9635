//! The ledger's partitions. The newest takes everything that comes. When it was begun on an earlier day it is closed at the
//! last entry and another is begun, so that each holds about a day; a closed one that retention has emptied is dropped, and its
//! space is free at once.
//!
//! Entries are numbered, not dated: a partition is a range of numbers. Which day it began on is in its name.

use std::{sync::Weak, time::Duration};

use tokio_postgres::{Client, types::Type};

use crate::Finding;

use super::{
    cells::{Cell, Param},
    link::{Failure, Line, Step, Trouble},
    migrate::lock_of,
    server::Server,
    sql::Ask,
};

/// How often somebody looks. One gateway of all does the work.
const EVERY: Duration = Duration::from_secs(600);

/// Nobody waits for this: whoever is in the way is let pass, and it is tried again the next time.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '1s'; \
    SET LOCAL statement_timeout = '20s'; SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// All who write stand in line here.
const ALONE: &str = "SELECT commits FROM head FOR UPDATE";

/// Only who owns a table may make and drop its partitions.
const OWNS: &str = "SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class \
    WHERE oid = pg_catalog.to_regclass(pg_catalog.quote_ident($1) || '.pages')";

/// What this role may not do with the partitions.
pub(super) async fn rights(line: &Line) -> Result<Option<Finding>, Failure> {
    let schema = Param::One(Cell::Text(line.address.schema.clone()));
    let ask = Ask { text: OWNS.to_owned(), params: vec![(schema, Type::TEXT)] };
    let answers = line.run(&[Step::Ask(ask)]).await?;
    let owns = answers.iter().flatten().next().map(|row| row.try_get(0)).transpose()?;
    Ok((owns == Some(false)).then(|| {
        Finding::risky(
            "this role does not own the tables: it decides and reads, but cannot close a day of the ledger or drop an old one",
            "start a gateway as their owner now and then, or the ledger's newest partition grows for ever",
        )
    }))
}

/// Looks after the partitions as long as there is the store.
pub(super) fn start(server: Weak<Server>) {
    tokio::spawn(async move {
        while let Some(server) = server.upgrade() {
            match look_after(&server).await {
                Err(failure) if failure.sort == Trouble::Refused => {
                    tracing::warn!(error = %failure, "ledger partition maintenance failed");
                }
                Err(failure) => {
                    tracing::debug!(error = %failure, "ledger partition maintenance deferred");
                }
                Ok(()) => {}
            }
            drop(server);
            tokio::time::sleep(EVERY).await;
        }
    });
}

/// Closes the newest partition when its day is over, drops those that are empty, forgets gateways that are long gone.
pub(super) async fn look_after(server: &Server) -> Result<(), Failure> {
    let client = server.reading.client_alone().await?;
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

/// Closes the newest partition when it was begun on an earlier day and holds something.
async fn roll(client: &Client) -> Result<(), Failure> {
    let row = client
        .query_typed_one(
            "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD'), \
             coalesce(obj_description('pages_newest'::regclass, 'pg_class'), ''), \
             (SELECT max(seq) FROM pages_newest), (SELECT min(seq) FROM pages_newest)",
            &[],
        )
        .await?;
    let (today, begun): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let (last, first): (Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
    let Some((last, first)) = last.zip(first) else {
        return say_begun(client, &today).await;
    };
    // Nothing yet, or what somebody wrote there for people.
    if begun.len() != 8 || !begun.bytes().all(|byte| byte.is_ascii_digit()) {
        return say_begun(client, &today).await;
    }
    if begun == today {
        return Ok(());
    }
    // Nobody writes meanwhile, so the last entry stays the last.
    client.batch_execute(ALONE).await?;
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
    let closed = format!("pages_{begun}_{first}");
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
    say_begun(client, &today).await
}

async fn say_begun(client: &Client, day: &str) -> Result<(), Failure> {
    // A date of the server's, eight digits.
    Ok(client.batch_execute(&format!("COMMENT ON TABLE pages_newest IS '{day}'")).await?)
}

/// Drops closed partitions that hold nothing any more.
async fn drop_empty(client: &Client) -> Result<(), Failure> {
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
            client.batch_execute(&format!("{ALONE}; DROP TABLE \"{name}\"")).await?;
            tracing::info!(partition = name, "dropped empty ledger partition");
        }
    }
    Ok(())
}
