//! HTTP/1.1 and HTTP/2 over TLS with a self-signed certificate.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use domain::time::{Day, Timestamp};
use doors::{Limits, SelfSigned};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    client::{is_closed, read_answer},
    world::{Setting, World, request},
};

pub(crate) async fn secure_world(limits: Limits) -> (World, SelfSigned) {
    let made = SelfSigned::create(["localhost".to_owned()], today()).unwrap();
    let tls = Some(made.material().unwrap());
    (World::with(Setting { limits, tls, ..Setting::default() }).await, made)
}

/// The client checks the certificate by the machine's clock.
fn today() -> Day {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(u64::try_from(now.as_millis()).unwrap()).day()
}

pub(crate) async fn connect(world: &World, made: &SelfSigned, alpn: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(world.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn http_1_is_spoken_over_tls() {
    let (world, made) = secure_world(Limits::default()).await;
    let mut stream = connect(&world, &made, b"http/1.1").await;
    for _ in 0..2 {
        stream.write_all(request("GET", "/healthz", "", &[], "").as_bytes()).await.unwrap();
        assert_eq!(read_answer(&mut stream).await.unwrap().body, "ok");
    }
    let smuggled =
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(smuggled.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 400);
}

#[tokio::test]
async fn http_2_is_spoken_where_the_client_offers_it() {
    let (world, made) = secure_world(Limits::default()).await;
    let io = TokioIo::new(connect(&world, &made, b"h2").await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    for (target, status) in [
        ("https://localhost/healthz", 200),
        ("https://evil.example/healthz", 421),
        ("https://localhost/v1/active", 401),
    ] {
        let request = http::Request::get(target).body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), status, "{target}");
        assert!(answer.headers().contains_key("content-security-policy"));
        answer.into_body().collect().await.unwrap();
    }
}

#[tokio::test]
async fn a_missing_handshake_times_out() {
    let short = Duration::from_millis(300);
    let (world, made) =
        secure_world(Limits { handshake_timeout: short, ..Limits::default() }).await;
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    assert!(is_closed(&mut silent).await);
    let mut plain = TcpStream::connect(world.address).await.unwrap();
    plain.write_all(request("GET", "/healthz", "", &[], "").as_bytes()).await.unwrap();
    assert!(read_answer(&mut plain).await.is_none(), "no HTTP without TLS");
    let mut stream = connect(&world, &made, b"http/1.1").await;
    stream.write_all(request("GET", "/healthz", "", &[], "").as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 200);
}
