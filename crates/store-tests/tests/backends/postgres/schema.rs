//! The schema: the first gateway migrates it once, every table is used and documented, and every statement uses an index
//! however large the table is.

use std::collections::BTreeSet;

use domain::{
    claim::ClaimState,
    id::WorkerName,
    ports::{ClaimFilter, Scope, SweepRequest, TotalsFilter},
    time::Day,
};
use store_tests::{
    World,
    servers::{PostgresOptions, PostgresServer, shared_postgres, wait_for},
};
use stores::{Backend, OpenError};
use tokio::task::JoinSet;

use crate::{connect, gateways::texts::use_everything, prefix};

fn tables(server: &PostgresServer, schema: &str) -> BTreeSet<String> {
    let all = server.psql(&format!(
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = '{schema}'::regnamespace \
         AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    ));
    all.lines().map(str::to_owned).collect()
}

// === migrations ===

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_that_start_together_migrate_once() {
    let server = shared_postgres();
    let schema = prefix();
    let url = format!("{}?schema={schema}", server.url());
    let mut starting = JoinSet::new();
    for _ in 0..5 {
        let url = url.clone();
        starting.spawn(async move { stores::migrate(&url).await.expect("it can be migrated") });
    }
    let reports = starting.join_all().await;
    assert_eq!(reports.iter().filter(|report| !report.steps.is_empty()).count(), 1, "{reports:?}");
    assert!(reports.iter().all(|report| report.to >= 1), "{reports:?}");
    let versions = server.psql(&format!("SELECT count(*), max(version) FROM {schema}.migrations"));
    assert_eq!(versions, format!("{0}|{0}", reports[0].to));
    assert_eq!(server.psql(&format!("SELECT count(*) FROM {schema}.head")), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_a_later_release_is_refused() {
    let server = shared_postgres();
    let schema = prefix();
    let url = format!("{}?schema={schema}", server.url());
    stores::migrate(&url).await.expect("it can be migrated");
    server.psql(&format!("INSERT INTO {schema}.migrations VALUES (99, 'of a later release')"));
    for refused in [stores::connect(&url).await.map(drop), stores::migrate(&url).await.map(drop)] {
        let error = refused.expect_err("it cannot know what is there");
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("format 99 (this release knows up to"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_printed_migration_makes_the_same_tables() {
    let server = PostgresServer::start(&PostgresOptions::default());
    server.psql(&stores::migrations_sql());
    let report = stores::migrate(&server.url()).await.expect("there is nothing to do");
    assert_eq!((report.from, report.steps.len()), (report.to, 0), "{report:?}");
    let schema = prefix();
    stores::migrate(&format!("{}?schema={schema}", server.url()))
        .await
        .expect("it can be migrated");
    let columns = |schema: &str| {
        server.psql(&format!(
            "SELECT table_name, column_name, data_type, collation_name FROM information_schema.columns \
             WHERE table_schema = '{schema}' ORDER BY 1, ordinal_position"
        ))
    };
    assert_eq!(columns("solvegate"), columns(&schema));
    let world = World::new(&stores::connect(&server.url()).await.expect("it is there"));
    world.open(world.turnstile("a")).await;
}

// === documentation ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_is_used_and_tells_what_is_in_it() {
    let server = shared_postgres();
    let schema = prefix();
    let world = World::new(&connect(&server.url(), &schema).await);
    use_everything(&world).await;
    let mut empty = tables(server, &schema);
    empty.retain(|table| server.psql(&format!("SELECT count(*) FROM {schema}.{table}")) == "0");
    // Only an archive has a row there.
    assert_eq!(empty, BTreeSet::from(["archived".to_owned()]));
    let states = server.psql(&format!(
        "SELECT state, count(*) FROM {schema}.claims WHERE worker IS NOT NULL AND opened_at IS NOT NULL \
         AND kind IS NOT NULL GROUP BY state ORDER BY state"
    ));
    assert!(states.contains("failed|1") && states.contains("waiting|"), "{states}");
    let ledger = server.psql(&format!("SELECT sum(entries), max(seq) FROM {schema}.pages"));
    let (entries, last) = ledger.split_once('|').expect("two columns");
    assert_eq!(entries, last, "entries are numbered from one");
    for secret in ["token-", "hooks.example.com"] {
        let shown =
            server.psql(&format!("SELECT (to_jsonb(c) - 'body')::text FROM {schema}.claims c"));
        assert!(!shown.contains(secret), "{secret} is shown");
    }
}

#[test]
fn the_documentation_names_every_table() {
    let page = include_str!("../../../../../docs/stores/postgres.md");
    let sql = stores::migrations_sql();
    let made = sql.lines().filter_map(|line| line.strip_prefix("CREATE TABLE "));
    let names: BTreeSet<&str> = made
        .map(|rest| rest.trim_start_matches("IF NOT EXISTS ").split(' ').next().expect("a name"))
        .collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not on the page");
    }
}

// === plans ===

/// Fills the tables with rows beside those that decisions and queries read. The last page is read by every decision, so the
/// other pages are before it.
const FILL: &str = "
    SET search_path TO SCHEMA;
    INSERT INTO claims (claim, version, body, worker) SELECT n, 1, '\\x00', 'w' FROM generate_series(1, 200000) n;
    INSERT INTO keys SELECT sha256(n::text::bytea), 1, '\\x00', n FROM generate_series(1, 200000) n;
    INSERT INTO solves (solve, version, body) SELECT n, 1, '\\x00' FROM generate_series(1, 200000) n;
    INSERT INTO tasks SELECT 'x' || n, 1, '\\x00', n, 1 FROM generate_series(1, 200000) n;
    INSERT INTO told SELECT 0, n, n FROM generate_series(1, 200000) n;
    INSERT INTO by_time SELECT LATEST - n * interval '1 second', n FROM generate_series(1, 200000) n;
    INSERT INTO by_worker SELECT 'w' || n % 9, LATEST - n * interval '1 second', n FROM generate_series(1, 200000) n;
    INSERT INTO by_sitekey SELECT 's' || n % 99, LATEST - n * interval '1 second', n FROM generate_series(1, 200000) n;
    INSERT INTO garbage SELECT LATEST + interval '1 day' + n * interval '1 minute', 2, n FROM generate_series(1, 200000) n;
    INSERT INTO watched SELECT LATEST + interval '1 day' + n * interval '1 minute', n FROM generate_series(1, 200000) n;
    INSERT INTO free SELECT LATEST + interval '1 day' + n * interval '1 minute', n FROM generate_series(1, 3000) n;
    INSERT INTO waiting SELECT sha256(n::text::bytea), LATEST, n FROM generate_series(1, 50000) n;
    INSERT INTO stock (fingerprint, expires_at, solve, version, body)
        SELECT sha256(n::text::bytea), LATEST + interval '1 year', n, 1, '\\x00' FROM generate_series(1, 3000) n;
    INSERT INTO expiries SELECT LATEST + interval '1 year', sha256(n::text::bytea), n FROM generate_series(1, 3000) n;
    INSERT INTO pages (seq, version, body) SELECT -n, 1, '\\x00' FROM generate_series(1, 200000) n;
    INSERT INTO totals (day, label, version, body)
        SELECT '2100-01-01'::date + n % 400, 'w' || n, 1, '\\x00' FROM generate_series(1, 50000) n;
    INSERT INTO died SELECT LATEST - n * interval '1 second', n FROM generate_series(1, 50000) n;
    INSERT INTO dead_letters (solve, version, body) SELECT n, 1, '\\x00' FROM generate_series(1, 50000) n;
";

/// On a large store every statement finds its rows by an index and reads little else. The server logs the plan of every
/// statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_reads_through_a_large_table() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let schema = prefix();
    let world = World::new(&connect(&server.url(), &schema).await);
    use_everything(&world).await;
    let latest = format!("to_timestamp({}) - interval '1 hour'", world.now().millis() / 1000);
    server.psql(&FILL.replace("SCHEMA", &schema).replace("LATEST", &format!("({latest})")));
    server.psql("ANALYZE");
    for setting in [
        "session_preload_libraries = 'auto_explain'",
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_analyze = on",
        "auto_explain.log_timing = off",
        "auto_explain.log_buffers = on",
    ] {
        server.psql(&format!("ALTER ROLE postgres SET {setting}"));
    }
    let backend = connect(&server.url(), &schema).await;
    let world = world.through(&backend);
    use_once_more(&world).await;
    read_everything(&backend, &world).await;
    check_plans(&server.log());
}

async fn use_once_more(world: &World) {
    let claim = world.serve(world.turnstile("again"), "t-again").await;
    world.fetch(&claim).await;
    world.open(world.image(b"shared")).await;
    world.fail(world.turnstile("fails"), "ERROR_PAGEURL").await;
    world.withdraw(&world.open(world.turnstile("taken-back")).await).await;
    world
        .store
        .sweep(SweepRequest::plain(100), world.now())
        .await
        .expect("the sweep finds what it looks for");
    world.store.callbacks(10, world.now()).await.expect("the server is up");
}

async fn read_everything(backend: &Backend, world: &World) {
    let records = &backend.records;
    let all = ClaimFilter::all(Scope::All, 5);
    let worker = WorkerName::new("qa").expect("a name");
    let own = ClaimFilter { scope: Scope::Worker(worker), ..all.clone() };
    let failed = ClaimFilter { state: Some(ClaimState::Failed), limit: 1, ..all.clone() };
    let site = ClaimFilter { sitekey: Some("again".into()), ..all.clone() };
    for filter in [all, own, failed, site] {
        records.history(filter).await.expect("history is read");
    }
    records.active(Scope::All, 5).await.ok();
    records.pools(world.now()).await.expect("pools are read");
    records.margins().await.expect("margins are read");
    records.spending(world.now().day()).await.expect("spending is read");
    records.entries(0, 5).await.expect("the ledger is read");
    let today = world.now().day();
    let ask =
        TotalsFilter { scope: Scope::All, from: today, to: Day::from_number(today.number() + 1) };
    records.totals(ask).await.expect("totals are read");
    let claim = world.open(world.turnstile("story")).await;
    records.explain(claim.id).await.expect("the claim is explained");
    backend.archive.archived().await.expect("the server is up");
}

/// Small tables: one row, or a row per migration or gateway that is read at startup; and the server's own.
const SMALL: [&str; 4] = ["head ", "migrations ", "turns ", "pg_"];
/// Rows that a statement may return. Active solves and stock are listed whole.
const FEW: u64 = 5100;
/// Rows that a statement may read and discard.
const IN_VAIN: u64 = 100;
/// Pages of 8 kB that a statement may read besides a few per returned row: fewer than any large index here has.
const PAGES: u64 = 400;

/// The number of rows that a plan node returned.
fn rows_of(line: &str) -> Option<u64> {
    let rest = line.split("(actual rows=").nth(1)?;
    let (rows, rest) = rest.split_once(" loops=")?;
    Some(rows.parse::<u64>().ok()? * rest.split(')').next()?.parse::<u64>().ok()?)
}

fn check_plans(log: &str) {
    let mut scans = 0;
    let lines: Vec<&str> = log.lines().collect();
    for (place, line) in lines.iter().enumerate() {
        let before = &lines[place.saturating_sub(12)..place];
        if let Some(table) = line.split("Seq Scan on ").nth(1) {
            assert!(SMALL.iter().any(|small| table.starts_with(small)), "{line}");
        }
        if let Some(rest) = line.split("Rows Removed by Filter: ").nth(1) {
            assert!(rest.trim().parse::<u64>().expect("a number") <= IN_VAIN, "{line}");
        }
        if let Some(rest) = line.split("Buffers: shared ").nth(1) {
            let counts = rest.split(' ').filter_map(|part| {
                let (what, count) = part.split_once('=')?;
                ["hit", "read"].contains(&what).then(|| count.parse::<u64>().expect("a number"))
            });
            let given = before.iter().rev().find_map(|line| rows_of(line)).unwrap_or(0);
            assert!(counts.sum::<u64>() <= PAGES + 8 * given, "{line}\n{}", before.join("\n"));
        }
        if line.contains("Index") && line.contains(" Scan using ") {
            scans += 1;
            assert!(rows_of(line).is_none_or(|rows| rows <= FEW), "{line}");
        }
    }
    assert!(scans > 120, "only {scans} scans were logged");
}

// === partitions ===

/// Sets the start of the newest partition to a day long ago, and lets a gateway close it.
async fn let_a_day_pass(server: &PostgresServer, schema: &str) -> Backend {
    let begun = format!("SELECT obj_description('{schema}.pages_newest'::regclass, 'pg_class')");
    wait_for("the newest partition says when it was begun", || !server.psql(&begun).is_empty());
    server.psql(&format!("COMMENT ON TABLE {schema}.pages_newest IS '20200102'"));
    let backend = connect(&server.url(), schema).await;
    wait_for("the day is closed", || server.psql(&begun) != "20200102");
    backend
}

fn closed(server: &PostgresServer, schema: &str) -> usize {
    let names = server.psql(&format!(
        "SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace \
         AND relispartition AND relkind = 'r' AND relname <> 'pages_newest'"
    ));
    assert!(names.lines().all(|name| name.starts_with("pages_20200102_")), "{names}");
    names.lines().filter(|name| !name.is_empty()).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_is_closed_day_by_day_and_what_retention_emptied_is_dropped() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let schema = prefix();
    let world = World::new(&connect(&server.url(), &schema).await);
    for day in 1..=3 {
        world.serve(world.turnstile(&format!("day-{day}")), &format!("t{day}")).await;
        let later = let_a_day_pass(&server, &schema).await;
        assert_eq!(closed(&server, &schema), day);
        // Gateways go on, whether or not they have the earlier partitions in their cache.
        world.open(world.turnstile("before")).await;
        world.through(&later).open(world.turnstile("after")).await;
    }
    store_tests::check(world.records.as_ref()).await;
    world.pass_days(100);
    for _ in 0..5 {
        world.sweep().await;
    }
    let_a_day_pass(&server, &schema).await;
    wait_for("empty partitions are gone", || closed(&server, &schema) <= 1);
    world.open(world.turnstile("much-later")).await;
    store_tests::check(world.records.as_ref()).await;
}

/// A partition's first day is in its comment, which an operator may overwrite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comment_by_an_operator_is_not_taken_for_a_day() {
    let server = shared_postgres();
    let schema = prefix();
    let world = World::new(&connect(&server.url(), &schema).await);
    world.open(world.turnstile("a")).await;
    let begun = format!("SELECT obj_description('{schema}.pages_newest'::regclass, 'pg_class')");
    wait_for("the newest partition says when it was begun", || !server.psql(&begun).is_empty());
    server.psql(&format!("COMMENT ON TABLE {schema}.pages_newest IS 'ours; ask first'"));
    let _backend = connect(&server.url(), &schema).await;
    wait_for("it says a day again", || server.psql(&begun).parse::<u32>().is_ok());
    assert_eq!(closed(server, &schema), 0);
}
