//! The schema, made and brought up to date in steps. Gateways that start together do it once: the first one has the lock, the
//! others find it done. An older release on a newer schema is refused.

use std::fmt::Write as _;

use crate::{Finding, OpenError};

use super::{
    address::Address,
    cells::{Cell, Param},
    link::{Failure, Line, Step},
    sql::Ask,
};

use tokio_postgres::types::Type;

/// One step. Steps are never changed once they were released.
struct Migration {
    version: i64,
    name: &'static str,
    text: &'static str,
}

/// What was done to the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version it was at; zero when there was none.
    pub from: u32,
    /// The version it is at.
    pub to: u32,
    /// The steps taken, by name.
    pub steps: Vec<String>,
}

const ALL: &[Migration] =
    &[Migration { version: 1, name: "tables", text: include_str!("migrations/0001_tables.sql") }];

/// Made first, by hand as it were: it says which steps were taken.
const MIGRATIONS: &str = "CREATE TABLE IF NOT EXISTS migrations (\n    version bigint PRIMARY KEY,\n    name text NOT NULL,\n    at timestamptz NOT NULL DEFAULT now()\n);\nCOMMENT ON TABLE migrations IS 'Steps taken to make these tables.';\n";

fn known() -> i64 {
    ALL.last().map_or(0, |migration| migration.version)
}

/// All steps as one text, for whoever lets no program change a schema.
pub fn migrations_sql() -> String {
    let mut text =
        "-- The schema of solvegate, whole. To be run once, in one transaction, by its owner.\n\
         BEGIN;\nCREATE SCHEMA IF NOT EXISTS solvegate;\nSET LOCAL search_path TO solvegate;\n\n"
            .to_owned();
    text.push_str(MIGRATIONS);
    for step in ALL {
        write!(
            text,
            "\n-- Step {}: {}\n{}\nINSERT INTO migrations (version, name) VALUES ({}, '{}');\n",
            step.version, step.name, step.text, step.version, step.name
        )
        .expect("a string takes everything");
    }
    text.push_str("COMMIT;\n");
    text
}

/// Takes the steps that are missing.
pub(super) async fn migrate(line: &Line) -> Result<Migrated, OpenError> {
    let address = &line.address;
    let away = |failure: Failure| super::unreachable(address, &failure);
    let found = version_of(line).await.map_err(away)?;
    check(address, found)?;
    if found == known() {
        return Ok(migrated(found, found));
    }
    let from = take_steps(line).await.map_err(away)?;
    check(address, from)?;
    Ok(migrated(from, known()))
}

/// How far the tables are; none is made or changed.
pub(super) async fn look(line: &Line) -> Result<Finding, OpenError> {
    let address = &line.address;
    let away = |failure: Failure| super::unreachable(address, &failure);
    let found = version_of(line).await.map_err(away)?;
    check(address, found)?;
    let steps = migrated(found, known()).steps;
    if !steps.is_empty() && !may_make(line).await.map_err(away)? {
        return Ok(Finding::bad(
            "tables are missing, and this role may not make them",
            "let their owner run what `solvegate store migrate --print` prints",
        ));
    }
    Ok(Finding::good(match found {
        0 => "no tables yet; serve or `store migrate` makes them".to_owned(),
        found if steps.is_empty() => format!("its tables are up to date (version {found})"),
        found => format!(
            "its tables are at version {found}; serve or `store migrate` does what is missing: {}",
            steps.join(", ")
        ),
    }))
}

fn migrated(from: i64, to: i64) -> Migrated {
    let steps = ALL.iter().filter(|step| step.version > from && step.version <= to);
    let number = |version: i64| u32::try_from(version).unwrap_or(0);
    Migrated {
        from: number(from),
        to: number(to),
        steps: steps.map(|step| step.name.to_owned()).collect(),
    }
}

fn check(address: &Address, found: i64) -> Result<(), OpenError> {
    if found <= known() {
        return Ok(());
    }
    Err(OpenError::Foreign {
        store: super::TITLE,
        server: address.shown(),
        found: format!("{found} (this release knows up to {})", known()),
        remedy: "?schema=NAME to use tables of its own",
    })
}

/// The version the schema is at; zero when there is none.
async fn version_of(line: &Line) -> Result<i64, Failure> {
    let schema = &line.address.schema;
    let is_there = Ask {
        text: "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'migrations'".to_owned(),
        params: vec![(Param::One(Cell::Text(schema.clone())), Type::TEXT)],
    };
    if number(&line.run(&[Step::Ask(is_there)]).await?) == 0 {
        return Ok(0);
    }
    let version = Ask {
        text: format!("SELECT coalesce(max(version), 0) FROM \"{schema}\".migrations"),
        params: Vec::new(),
    };
    Ok(number(&line.run(&[Step::Ask(version)]).await?))
}

/// Whether this role may make tables in the schema, or the schema itself.
async fn may_make(line: &Line) -> Result<bool, Failure> {
    let ask = Ask {
        text: "SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace \
               WHERE nspname = $1), has_database_privilege(current_database(), 'CREATE'))::int::bigint"
            .to_owned(),
        params: vec![(Param::One(Cell::Text(line.address.schema.clone())), Type::TEXT)],
    };
    Ok(number(&line.run(&[Step::Ask(ask)]).await?) == 1)
}

fn number(answers: &[Vec<tokio_postgres::Row>]) -> i64 {
    let row = answers.iter().flatten().next();
    row.and_then(|row| row.try_get(0).ok()).unwrap_or(0)
}

/// Takes the steps under a lock; says which version was there when it was had.
async fn take_steps(line: &Line) -> Result<i64, Failure> {
    let schema = &line.address.schema;
    let seat = line.client_alone().await?;
    seat.batch_execute("BEGIN; SET LOCAL statement_timeout = '60s'").await?;
    // Others who start wait here until it is done.
    seat.execute_typed(
        "SELECT pg_advisory_xact_lock($1)",
        &[(&lock_of("migrations", schema), Type::INT8)],
    )
    .await?;
    let made = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let made: i64 = seat.query_typed_one(made, &[(schema, Type::TEXT)]).await?.try_get(0)?;
    if made == 0 {
        seat.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    seat.batch_execute(&format!("SET LOCAL search_path TO \"{schema}\"; {MIGRATIONS}")).await?;
    let from: i64 = seat
        .query_typed_one("SELECT coalesce(max(version), 0) FROM migrations", &[])
        .await?
        .try_get(0)?;
    for step in ALL.iter().filter(|step| step.version > from) {
        seat.batch_execute(step.text).await?;
        let note = "INSERT INTO migrations (version, name) VALUES ($1, $2)";
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&step.version, Type::INT8), (&step.name, Type::TEXT)];
        seat.execute_typed(note, &params).await?;
        tracing::info!(schema, step = step.name, version = step.version, "migrated store schema");
    }
    seat.batch_execute("COMMIT").await?;
    Ok(from)
}

/// The name of a lock: FNV-1a of what is done and the schema's name, the same in every release.
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

    /// Releases that start side by side must mean the same lock.
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
