//! A gateway on PostgreSQL: `doctor` changes nothing, a role with few rights is enough, and lost commits are reported.

use std::path::Path;

use serde_json::json;
use store_tests::servers::{PostgresOptions, PostgresServer};

use crate::support::{Gateway, Settings, Sim, eventually, run};

fn doctor(dir: &Path, store: &str) -> (Option<i32>, String) {
    let output = run(dir, &["doctor", "--listen", "127.0.0.1:0", "--store", store], &[]);
    (output.code, output.stdout)
}

fn count(server: &PostgresServer, what: &str) -> String {
    server.psql(&format!("SELECT count(*) FROM {what}"))
}

#[test]
fn doctor_examines_a_postgres_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = PostgresServer::start(&PostgresOptions::default());
    let url = format!("{}?schema=looked_at", server.url());
    let (code, said) = doctor(dir.path(), &url);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no tables yet; serve or `store migrate` makes them"), "{said}");
    assert_eq!(count(&server, "pg_namespace WHERE nspname = 'looked_at'"), "0");
    assert_eq!(
        count(&server, "pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"),
        "0"
    );

    server.psql("CREATE ROLE guest LOGIN");
    let (code, said) = doctor(dir.path(), &url.replace("postgres@", "guest@"));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("✗ store          tables are missing"), "{said}");
    assert!(said.contains("store migrate --print"), "{said}");

    let output = run(dir.path(), &["store", "migrate", "--store", &url], &[]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let (code, said) = doctor(dir.path(), &url);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("its tables are up to date (version 2)"), "{said}");
    assert_eq!(count(&server, "looked_at.turns"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_only_read_and_write_rows_is_enough_and_its_limits_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let server = PostgresServer::start(&PostgresOptions::default());
    server.psql(&stores::migrations_sql());
    server.psql(
        "CREATE ROLE least LOGIN; GRANT USAGE ON SCHEMA solvegate TO least; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA solvegate TO least",
    );
    let url = server.url().replace("postgres@", "least@");
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let gateway =
        Gateway::with(dir.path(), &sim, &Settings { store: url.clone(), ..Settings::default() });
    let body =
        json!({ "kind": "turnstile", "sitekey": "a", "pageurl": "https://shop.example.com/" });
    let claim = gateway.solve(body, Some("order-1")).await.body;
    assert_eq!(claim["state"], "served", "{claim}");
    assert!(!gateway.story(claim["id"].as_str().unwrap()).await.is_empty());
    let said = gateway.process.stderr();
    assert!(said.contains("this role does not own the tables"), "{said}");
    let (code, said) = doctor(dir.path(), &url);
    assert!(said.contains("! store          this role does not own the tables"), "{code:?} {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_commits_of_a_server_are_detected() {
    let dir = tempfile::tempdir().unwrap();
    let server = PostgresServer::start(&PostgresOptions::default());
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let gateway =
        Gateway::with(dir.path(), &sim, &Settings { store: server.url(), ..Settings::default() });
    let body = |sitekey: &str| json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/" });
    assert_eq!(gateway.solve(body("a"), None).await.body["state"], "served");
    assert!(!gateway.process.stderr().contains("has forgotten commits"));
    // Like a promoted replica that had lagged behind.
    server.psql("UPDATE solvegate.head SET commits = commits - 3");
    eventually("the gateway has restored its records", async || {
        (gateway.solve(body("b"), None).await.body["state"] == "served").then_some(())
    })
    .await;
    let said = gateway.process.stderr();
    assert!(said.contains("PostgreSQL has forgotten commits"), "{said}");
    assert!(said.contains("restored this gateway's records"), "{said}");
}
