//! Callers without a key send forms that never end. The gateway's memory stays bounded, and a worker is served meanwhile.

use std::{fs, future::pending, io, path::Path, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    future::join_all,
    stream::{self, FuturesUnordered},
};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

use crate::support::{CERTIFICATE, Gateway, Settings, Sim, WORKER};

const CONNECTIONS: usize = 1000;
const STREAMS: usize = 40;
const MIB: u64 = 1024 * 1024;
const BODY: usize = 2 * 1024 * 1024;
/// What each of the many connections sends of its form: more than the gateway searches for a key.
const SENT: usize = 96 * 1024;

/// How strangers reach the gateway.
#[derive(Clone)]
struct Target {
    host: String,
    /// `None` without TLS.
    config: Option<Arc<ClientConfig>>,
}

trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Duplex for S {}

type Connection = Pin<Box<dyn Duplex>>;

impl Target {
    fn of(gateway: &Gateway, dir: &Path) -> Self {
        let (scheme, host) = gateway.base.split_once("://").unwrap();
        let config = (scheme == "https").then(|| Arc::new(trusting(dir)));
        Self { host: host.to_owned(), config }
    }

    async fn connect(&self, alpn: &[u8]) -> io::Result<Connection> {
        let stream = TcpStream::connect(&self.host).await?;
        let Some(config) = &self.config else { return Ok(Box::pin(stream)) };
        let mut config = (**config).clone();
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        Ok(Box::pin(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }

    /// Sends a form without its last byte. The gateway may refuse it at any moment.
    async fn unfinished_form(&self) -> Option<Connection> {
        let mut stream = self.connect(b"http/1.1").await.ok()?;
        let head = format!(
            "POST /in.php HTTP/1.1\r\nhost: localhost\r\ncontent-length: {SENT}\r\n\r\nbody="
        );
        let mut bytes = head.into_bytes();
        bytes.resize(bytes.len() + SENT - 6, b'A');
        stream.write_all(&bytes).await.ok();
        stream.flush().await.ok();
        Some(stream)
    }

    /// One HTTP/2 connection with forms that all miss their last byte.
    async fn unfinished_streams(&self) -> JoinSet<()> {
        let io = TokioIo::new(self.connect(b"h2").await.unwrap());
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async { connection.await.unwrap_or(()) });
        for _ in 0..STREAMS {
            let mut sender = sender.clone();
            let request = http::Request::post("https://localhost/in.php")
                .header("content-length", BODY)
                .body(StreamBody::new(Box::pin(endless_body())))
                .unwrap();
            // Refused, or closed: both are fine.
            tasks.spawn(async move { drop(sender.send_request(request).await) });
        }
        tasks
    }
}

/// Trusts the certificate of the gateway in this directory.
fn trusting(dir: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let certificate = fs::read(dir.join(CERTIFICATE)).unwrap();
    roots.add(CertificateDer::from_pem_slice(&certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// All but the last byte of a body.
fn endless_body() -> impl futures_util::Stream<Item = Result<Frame<Bytes>, io::Error>> {
    let piece = Bytes::from(vec![b'A'; 16 * 1024]);
    let whole = BODY / piece.len() - 1;
    let last = piece.slice(1..);
    let pieces = std::iter::repeat_n(piece, whole).chain([last]);
    stream::iter(pieces.map(|piece| Ok(Frame::data(piece)))).chain(stream::once(pending()))
}

/// On both doors; on in.php with the key in the form.
async fn worker_is_served(gateway: &Gateway, target: &Target, round: usize) {
    let claim = json!({
        "kind": "turnstile", "sitekey": format!("0x4{round}"), "pageurl": "https://shop.example.com/login",
    });
    let reply = gateway.solve(claim, None).await;
    assert!(reply.status.is_success(), "{}", reply.body);
    let form = format!(
        "key={WORKER}&method=turnstile&sitekey=0x5{round}&pageurl=https://shop.example.com/"
    );
    let mut stream = target.connect(b"http/1.1").await.unwrap();
    let request = format!(
        "POST /in.php HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{form}",
        form.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\r\n\r\nOK|"), "{answer}");
}

/// Opens a thousand connections that withhold the last byte of their form, and serves a worker meanwhile.
async fn besiege(gateway: &Gateway, target: &Target) {
    worker_is_served(gateway, target, 0).await;
    let idle = gateway.process.memory("VmRSS");
    // HTTP/2 is spoken over TLS only.
    let streams = match target.config {
        Some(_) => target.unfinished_streams().await,
        None => JoinSet::new(),
    };
    let mut forms: FuturesUnordered<_> =
        (0..CONNECTIONS).map(|_| target.unfinished_form()).collect();
    let mut open = Vec::new();
    while let Some(form) = forms.next().await {
        open.extend(form);
        if open.len() % 250 == 0 {
            worker_is_served(gateway, target, open.len()).await;
        }
    }
    assert!(open.len() > CONNECTIONS / 2, "only {} connections were accepted", open.len());
    join_all((1..=5).map(|round| worker_is_served(gateway, target, round))).await;
    // The peak, because some strangers are gone by now.
    let grown = gateway.process.memory("VmHWM").saturating_sub(idle);
    assert!(grown < 64 * MIB, "{} MiB more than idle", grown / MIB);
    drop((streams, open));
}

async fn besiege_gateway(tls: bool) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    let gateway =
        Gateway::with(dir.path(), &sim, &Settings { tls, log: "warn", ..Settings::default() });
    besiege(&gateway, &Target::of(&gateway, dir.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_without_a_key_take_little_memory_and_a_worker_is_served() {
    besiege_gateway(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tls_connections_beside_forty_streams_take_little_memory_and_a_worker_is_served()
{
    besiege_gateway(true).await;
}
