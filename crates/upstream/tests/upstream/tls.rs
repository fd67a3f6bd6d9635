//! Certificates: a provider without a valid certificate gets no byte.

use std::{sync::Arc, time::Duration};

use domain::ports::{Provider as _, Submission};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    version::{TLS12, TLS13},
};
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsAcceptor;
use upstream::{BadUpstream, Upstream, UpstreamConfig};

use crate::support::{
    HandClock, KEY, Server, Visit, attempt, challenge, config, ok, task, upstream,
};

const ACCEPTED: &str = r#"{"status":1,"request":"7"}"#;

pub(crate) fn certificate(host: &str) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed([host.to_owned()]).unwrap()
}

pub(crate) fn acceptor(
    certificate: &CertifiedKey<KeyPair>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(ring)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A server that answers with `bytes` over TLS and then closes the connection, properly or not.
pub(crate) async fn secured(acceptor: TlsAcceptor, bytes: String, properly: bool) -> Server {
    Server::start(move |visit| {
        let (acceptor, bytes) = (acceptor.clone(), bytes.clone());
        async move {
            let Visit { stream, number, seen } = visit;
            let Ok(stream) = acceptor.accept(stream).await else { return };
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
            let mut visit = Visit { stream, number, seen };
            if visit.request().await.is_some() {
                visit.write(bytes.as_bytes()).await;
                if properly {
                    visit.stream.shutdown().await.ok();
                }
            }
        }
    })
    .await
}

fn trusting(server: &Server, certificate: &CertifiedKey<KeyPair>) -> UpstreamConfig {
    let url = server.url.replace("http://127.0.0.1", "https://localhost");
    UpstreamConfig { extra_root_pem: Some(certificate.cert.pem().into_bytes()), ..config(&url) }
}

async fn submit(config: UpstreamConfig) -> Submission {
    upstream(config).submit(&challenge(), attempt()).await
}

#[tokio::test]
async fn a_provider_with_a_trusted_certificate_gets_the_request() {
    for version in [&TLS12, &TLS13] {
        let certificate = certificate("localhost");
        let server = secured(acceptor(&certificate, &[version]), ok(ACCEPTED), true).await;
        let submission = submit(trusting(&server, &certificate)).await;
        assert_eq!(submission, Submission::Accepted(task("7")));
        assert!(server.requests()[0].contains(&format!("key={KEY}")));
    }
}

#[tokio::test]
async fn the_certificate_of_another_host_gets_no_byte() {
    let certificate = certificate("other.example.com");
    let server = secured(acceptor(&certificate, &[&TLS12, &TLS13]), ok(ACCEPTED), true).await;
    let submission = submit(trusting(&server, &certificate)).await;
    assert!(
        matches!(&submission, Submission::NotSent(why) if why.contains("TLS") && why.len() <= 250),
        "{submission:?}"
    );
    assert_eq!((server.connections(), server.requests().len()), (1, 0));
}

#[tokio::test]
async fn an_untrusted_certificate_gets_no_byte() {
    let certificate = certificate("localhost");
    let server = secured(acceptor(&certificate, &[&TLS12, &TLS13]), ok(ACCEPTED), true).await;
    let config = UpstreamConfig { extra_root_pem: None, ..trusting(&server, &certificate) };
    let submission = submit(config).await;
    assert!(matches!(submission, Submission::NotSent(_)), "{submission:?}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_handshake_that_never_ends_sends_nothing() {
    let server = Server::start(|visit| async move {
        let _held = visit;
        std::future::pending::<()>().await;
    })
    .await;
    let connect_timeout = Duration::from_millis(200);
    let config = trusting(&server, &certificate("localhost"));
    let submission = submit(UpstreamConfig { connect_timeout, ..config }).await;
    assert!(matches!(submission, Submission::NotSent(_)), "{submission:?}");
}

#[tokio::test]
async fn a_server_without_tls_gets_no_byte() {
    let server = Server::start(|mut visit| async move {
        visit.write(ok(ACCEPTED).as_bytes()).await;
    })
    .await;
    let submission = submit(trusting(&server, &certificate("localhost"))).await;
    assert!(matches!(submission, Submission::NotSent(_)), "{submission:?}");
}

/// Without a length only the `close_notify` of TLS proves that the reply is complete; a truncated id must not pass for an id.
#[tokio::test]
async fn an_answer_cut_off_inside_tls_is_ambiguous() {
    let certificate = certificate("localhost");
    for properly in [true, false] {
        let bytes = "HTTP/1.1 200 OK\r\n\r\nOK|7".to_owned();
        let server = secured(acceptor(&certificate, &[&TLS13]), bytes, properly).await;
        let submission = submit(trusting(&server, &certificate)).await;
        if properly {
            assert_eq!(submission, Submission::Accepted(task("7")));
        } else {
            assert!(matches!(submission, Submission::Ambiguous { .. }), "{submission:?}");
        }
    }
}

#[test]
fn unreadable_root_certificates_are_refused_at_start() {
    for pem in
        ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let extra_root_pem = Some(pem.as_bytes().to_vec());
        let config = UpstreamConfig { extra_root_pem, ..config("https://localhost") };
        let refused = Upstream::new(config, Arc::new(HandClock::default())).unwrap_err();
        assert!(matches!(refused, BadUpstream::Roots(_)), "{pem}");
    }
}
