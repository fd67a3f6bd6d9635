//! TLS to the server, and the messages about it, which never contain a password.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rcgen::{CertifiedKey, generate_simple_self_signed};
use store_tests::{
    World,
    servers::{PostgresOptions, PostgresServer, shared_postgres},
};
use stores::{OpenError, Weight};

fn certificate() -> (String, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_reached_over_tls_and_verified_on_request() {
    let (ours, key) = certificate();
    let server = PostgresServer::start(&PostgresOptions {
        tls: Some((ours.clone(), key)),
        ..PostgresOptions::default()
    });
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (right, wrong) = (file("right.pem", &ours), file("wrong.pem", &certificate().0));
    let url = server.url();
    for good in [
        format!("{url}?sslmode=require"),
        format!("{url}?sslmode=prefer"),
        format!("{url}?sslmode=verify-full&sslrootcert={right}"),
        format!("{}?sslrootcert={right}", url.replace("127.0.0.1", "localhost")),
    ] {
        let backend = stores::connect(&good).await.unwrap_or_else(|why| panic!("{good}: {why}"));
        let world = World::new(&backend);
        let claim = world.turnstile("a");
        backend.store.admit(claim, world.now()).await.unwrap();
        let secured = server.psql(
            "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE application_name = 'solvegate'",
        );
        assert_eq!(secured, "t", "{good}");
    }
    for bad in [
        format!("{url}?sslmode=disable"),
        format!("{url}?sslmode=verify-full&sslrootcert={wrong}"),
        format!("{url}?sslmode=verify-full"),
    ] {
        let refused = stores::connect(&bad).await.map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Unreachable { .. }), "{bad}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_contains_a_password() {
    let port = shared_postgres().port();
    for url in [
        format!("postgres://nobody:geheim@127.0.0.1:{port}/postgres"),
        format!("postgres://nobody:geheim@127.0.0.1:{port}/nowhere"),
        "postgres://nobody:geheim@127.0.0.1:1/postgres".to_owned(),
        format!("postgres://nobody:geheim@127.0.0.1:{port}/postgres?schema=9"),
        format!("postgres://nobody:geheim@127.0.0.1:{port}/postgres?sslrootcert=/nowhere"),
    ] {
        let said = stores::connect(&url).await.map(drop).unwrap_err();
        let said = format!("{said} {said:?}");
        assert!(!said.contains("geheim"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn risky_settings_are_found() {
    let fast = crate::connect(&shared_postgres().url(), &crate::prefix()).await;
    let is_risky = |finding: &&stores::Finding| finding.weight == Weight::Risky;
    let risks: Vec<_> = fast.findings.iter().filter(is_risky).map(|f| f.what.clone()).collect();
    assert!(risks.len() == 1 && risks[0].starts_with("fsync is off"), "{risks:?}");
    let careful = PostgresServer::start(&PostgresOptions {
        durable: true,
        extra: vec!["synchronous_commit=off".into(), "max_connections=12".into()],
        ..PostgresOptions::default()
    });
    let backend = stores::connect(&careful.url()).await.unwrap();
    let risks: Vec<_> = backend.findings.iter().filter(is_risky).map(|f| f.what.clone()).collect();
    assert!(risks.len() == 1 && risks[0].contains("a gateway needs up to 9 more"), "{risks:?}");
    let said: Vec<_> = backend.findings.iter().map(|finding| finding.what.as_str()).collect();
    assert!(
        said.iter().any(|what| what.contains("off there and on in every decision")),
        "{said:?}"
    );
}
