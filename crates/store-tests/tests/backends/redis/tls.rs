//! `rediss://` to a server whose certificate is signed by a private authority.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use store_tests::servers::{RedisOptions, RedisServer, free_port};

/// An authority, and a server's certificate and key, as files.
fn certificates(dir: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]);
    let server = server.unwrap().signed_by(&key, &authority).unwrap();
    fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
    fs::write(dir.join("server.pem"), server.pem()).unwrap();
    fs::write(dir.join("server.key"), key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn a_server_is_trusted_by_the_authority_named_and_by_no_other() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let port = free_port();
    let tls = [("--tls-port", port.to_string()), ("--tls-auth-clients", "no".to_owned())];
    let files = [("--tls-cert-file", "server.pem"), ("--tls-key-file", "server.key")];
    let files = files.map(|(option, name)| (option, file(name)));
    let ca = [("--tls-ca-cert-file", file("ca.pem"))];
    let options = tls.into_iter().chain(files).chain(ca);
    let extra = options.flat_map(|(option, value)| [option.to_owned(), value]).collect();
    let _server = RedisServer::start(&RedisOptions { extra, ..RedisOptions::default() });

    let url = format!("rediss://127.0.0.1:{port}?ca={}", file("ca.pem"));
    let backend = stores::connect(&url).await.expect("its authority is known");
    let world = store_tests::World::new(&backend);
    let claim = world.open(world.turnstile("a")).await;
    assert_eq!(world.find(&claim).await.id, claim.id);

    let unknown = stores::connect(&format!("rediss://127.0.0.1:{port}")).await;
    let why = unknown.expect_err("no other authority signed it").to_string();
    assert!(why.contains("127.0.0.1"), "{why}");
}
