//! Creates and updates the schema in steps. When gateways start together, the first one takes a lock and runs the missing steps;
//! the others wait and find them done. An older release refuses a newer schema.

use std::fmt::Write as _;

use crate::{Finding, OpenError};

use super::{
    SERVER,
    connection::{Pool, QueryError},
    sql::Statement,
};

use tokio_postgres::types::Type;

/// One step. A released step never changes.
struct Migration {
    version: i64,
    name: &'static str,
    text: &'static str,
}

/// The steps that a migration ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; zero when there was no schema.
    pub from: u32,
    /// The version after.
    pub to: u32,
    /// The names of the steps that ran.
    pub steps: Vec<String>,
}

const ALL: &[Migration] = &[
    Migration { version: 1, name: "tables", text: include_str!("migrations/0001_tables.sql") },
    Migration {
        version: 2,
        name: "incarnations",
        text: include_str!("migrations/0002_incarnations.sql"),
    },
];

/// The table that records the steps. It is created before the first step.
const MIGRATIONS: &str = "CREATE TABLE IF NOT EXISTS migrations (\n    version bigint PRIMARY KEY,\n    name text NOT NULL,\n    at timestamptz NOT NULL DEFAULT now()\n);\nCOMMENT ON TABLE migrations IS 'Steps taken to make these tables.';\n";

fn known() -> i64 {
    ALL.last().map_or(0, |migration| migration.version)
}

/// All steps as one script, for administrators who run schema changes themselves.
pub fn migrations_sql() -> String {
    let mut text =
        "-- The complete schema of solvegate. Run it once, in one transaction, as the owner of the tables.\n\
         BEGIN;\nCREATE SCHEMA IF NOT EXISTS solvegate;\nSET LOCAL search_path TO solvegate;\n\n"
            .to_owned();
    text.push_str(MIGRATIONS);
    for step in ALL {
        write!(
            text,
            "\n-- Step {}: {}\n{}\nINSERT INTO migrations (version, name) VALUES ({}, '{}');\n",
            step.version, step.name, step.text, step.version, step.name
        )
        .expect("writing to a string cannot fail");
    }
    text.push_str("COMMIT;\n");
    text
}

/// Runs the missing steps.
pub(super) async fn migrate(pool: &Pool) -> Result<Migrated, OpenError> {
    let mut from = version_of(pool).await?;
    if from < known() {
        from = run_missing(pool).await.map_err(|error| pool.failed_to_open(&error))?;
        check(pool, from)?;
    }
    Ok(migrated(from))
}

/// Examines the version of the schema without changing it.
pub(super) async fn examine(pool: &Pool) -> Result<Finding, OpenError> {
    let found = version_of(pool).await?;
    let steps = migrated(found).steps;
    let may_migrate = steps.is_empty() || may_create(pool).await?;
    if !may_migrate {
        return Ok(Finding::bad(
            "tables are missing, and this role may not create them",
            "let their owner run the output of `solvegate store migrate --print`",
        ));
    }
    Ok(Finding::good(match found {
        0 => "no tables yet; serve or `store migrate` makes them".to_owned(),
        found if steps.is_empty() => format!("its tables are up to date (version {found})"),
        found => format!(
            "its tables are at version {found}; serve or `store migrate` runs the missing steps: {}",
            steps.join(", ")
        ),
    }))
}

fn migrated(from: i64) -> Migrated {
    let steps = ALL.iter().filter(|step| step.version > from);
    let number = |version: i64| u32::try_from(version).unwrap_or(0);
    Migrated {
        from: number(from),
        to: number(known()),
        steps: steps.map(|step| step.name.to_owned()).collect(),
    }
}

fn check(pool: &Pool, found: i64) -> Result<(), OpenError> {
    if found <= known() {
        return Ok(());
    }
    let found = format!("{found} (this release knows up to {})", known());
    Err(SERVER.foreign(pool.address.to_string(), found, "?schema=NAME to use tables of its own"))
}

/// The version of the schema, which this release knows; zero when there is none.
async fn version_of(pool: &Pool) -> Result<i64, OpenError> {
    let schema = &pool.address.schema;
    let exists = "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'migrations'";
    if number(pool, Statement::new(exists).text(schema)).await? == 0 {
        return Ok(0);
    }
    let version = format!("SELECT coalesce(max(version), 0) FROM \"{schema}\".migrations");
    let version = number(pool, Statement::new(version)).await?;
    check(pool, version)?;
    Ok(version)
}

/// Whether this role may create tables in the schema, or the schema itself.
async fn may_create(pool: &Pool) -> Result<bool, OpenError> {
    let may_create = "SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace \
        WHERE nspname = $1), has_database_privilege(current_database(), 'CREATE'))::int::bigint";
    let may_create = Statement::new(may_create).text(&pool.address.schema);
    Ok(number(pool, may_create).await? == 1)
}

async fn number(pool: &Pool, statement: Statement) -> Result<i64, OpenError> {
    let rows = pool.query(statement).await.map_err(|error| pool.failed_to_open(&error))?;
    Ok(rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0))
}

/// Runs the missing steps under a lock. Returns the version that the schema had when the lock was acquired.
async fn run_missing(pool: &Pool) -> Result<i64, QueryError> {
    let schema = &pool.address.schema;
    let client = pool.dedicated().await?;
    client.batch_execute("BEGIN; SET LOCAL statement_timeout = '60s'").await?;
    // Other gateways that start now wait here.
    client
        .execute_typed(
            "SELECT pg_advisory_xact_lock($1)",
            &[(&lock_of("migrations", schema), Type::INT8)],
        )
        .await?;
    let schemas = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let schemas: i64 =
        client.query_typed_one(schemas, &[(schema, Type::TEXT)]).await?.try_get(0)?;
    if schemas == 0 {
        client.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    client.batch_execute(&format!("SET LOCAL search_path TO \"{schema}\"; {MIGRATIONS}")).await?;
    let from: i64 = client
        .query_typed_one("SELECT coalesce(max(version), 0) FROM migrations", &[])
        .await?
        .try_get(0)?;
    for step in ALL.iter().filter(|step| step.version > from) {
        client.batch_execute(step.text).await?;
        let note = "INSERT INTO migrations (version, name) VALUES ($1, $2)";
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&step.version, Type::INT8), (&step.name, Type::TEXT)];
        client.execute_typed(note, &params).await?;
        tracing::info!(schema, step = step.name, version = step.version, "migrated store schema");
    }
    client.batch_execute("COMMIT").await?;
    Ok(from)
}

/// The key of an advisory lock: FNV-1a of its purpose and the schema's name, the same in every release.
pub(super) fn lock_of(work: &str, schema: &str) -> i64 {
    let bytes = b"solvegate ".iter().chain(work.as_bytes()).chain(b" ").chain(schema.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Releases that start together must use the same lock.
    const LOCK: i64 = -988_474_304_884_034_292;

    #[test]
    fn steps_are_numbered_and_the_lock_is_stable() {
        for (place, step) in (1..).zip(ALL) {
            assert_eq!(step.version, place);
        }
        assert_eq!(lock_of("migrations", "solvegate"), LOCK);
        assert_ne!(lock_of("migrations", "other"), LOCK);
    }
}
