//! Callbacks and alerts of the real binary: signed, sent to named hosts, and refused at submit for private addresses.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::secret::Secret;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use solvegate::client::{Call, Remote};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};

use crate::support::{Gateway, Process, Settings, Sim, command, eventually};

/// A received request.
#[derive(Clone, Debug)]
struct Received {
    head: String,
    body: Vec<u8>,
}

/// A receiver on loopback that accepts everything.
struct Receiver {
    address: String,
    received: Arc<Mutex<Vec<Received>>>,
    listening: JoinHandle<()>,
}

// === impl Received ===

impl Received {
    fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in\n{}", self.head))
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Verifies the signature as a receiver would, by the text of Standard Webhooks.
    fn is_signed_with(&self, secret: &str) -> bool {
        let key = STANDARD.decode(secret.trim().strip_prefix("whsec_").unwrap()).unwrap();
        let (id, time) = (self.header("webhook-id"), self.header("webhook-timestamp"));
        let signed = [format!("{id}.{time}.").as_bytes(), &self.body].concat();
        let expected = format!("v1,{}", STANDARD.encode(hmac_sha256(&key, &signed)));
        self.header("webhook-signature").split(' ').any(|one| one == expected)
    }
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |with: u8| -> Vec<u8> {
        let padded = key.iter().copied().chain(std::iter::repeat(0)).take(64);
        padded.map(|byte| byte ^ with).collect()
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

// === impl Receiver ===

impl Receiver {
    #[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        let listening = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = Vec::new();
                let read = loop {
                    let mut more = [0; 4096];
                    match stream.read(&mut more).await {
                        Ok(count @ 1..) => bytes.extend_from_slice(&more[..count]),
                        Ok(0) | Err(_) => break None,
                    }
                    if let Some(whole) = whole(&bytes) {
                        break Some(whole);
                    }
                };
                kept.lock().unwrap().extend(read);
                let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        });
        Self { address, received, listening }
    }

    fn url(&self) -> String {
        format!("http://{}/hook?order=17", self.address)
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    async fn first(&self) -> Received {
        eventually("a notice is received", async || self.received().first().cloned()).await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Parses a request once its body is complete.
fn whole(bytes: &[u8]) -> Option<Received> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let body = bytes[end + 4..].to_vec();
    (body.len() == length.parse::<usize>().unwrap()).then_some(Received { head, body })
}

fn challenge(callback_url: &str) -> Value {
    json!({
        "kind": "turnstile",
        "sitekey": "0x4AAA",
        "pageurl": "https://shop.example.com/",
        "callback_url": callback_url,
    })
}

fn naming(receiver: &Receiver, more: &str) -> Settings {
    let address = &receiver.address;
    Settings {
        more: format!("[callbacks]\nhosts = [\"{address}\"]\n{more}"),
        ..Settings::default()
    }
}

fn made_secret(dir: &Path) -> String {
    fs::read_to_string(dir.join("data/callback.secret")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_claim_is_announced_once_and_signed_with_the_generated_secret() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let receiver = Receiver::start().await;
    let gateway = Gateway::with(dir.path(), &sim, &naming(&receiver, ""));
    assert!(gateway.process.line_after("callbacks:").contains("data/callback.secret"));
    let solved = gateway.solve(challenge(&receiver.url()), Some("order-17")).await;
    assert_eq!(solved.status, StatusCode::OK, "{}", solved.body);
    let told = receiver.first().await;
    assert!(told.head.starts_with("POST /hook?order=17 HTTP/1.1"), "{}", told.head);
    assert!(told.is_signed_with(&made_secret(dir.path())), "{}", told.head);
    assert!(!told.is_signed_with("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"), "of another secret");
    let (notice, id) = (told.json(), solved.body["id"].as_str().unwrap());
    assert_eq!((&notice["type"], &notice["data"]["id"]), (&json!("solve.served"), &json!(id)));
    assert_eq!(notice["data"]["token"], solved.body["token"]);
    assert!(told.header("webhook-id").contains(id));
    // A replay is the same claim and ends once. The callback of a later claim would arrive after a second one.
    gateway.solve(challenge(&receiver.url()), Some("order-17")).await;
    let later = gateway.solve(challenge(&receiver.url()), Some("order-18")).await;
    eventually("the later callback arrives", async || {
        (receiver.received().len() > 1).then_some(())
    })
    .await;
    let told: Vec<_> =
        receiver.received().iter().map(|told| told.json()["data"]["id"].clone()).collect();
    assert_eq!(told, [json!(id), later.body["id"].clone()]);
    assert!(!gateway.process.stderr().contains("order=17"), "addresses are not logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_announced_too_and_alerts_go_to_the_operator() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let (receiver, operator) = (Receiver::start().await, Receiver::start().await);
    let more = format!(
        "secret = [\"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3\", \"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\"]\n\
         [alerts]\nurl = \"{}\"\n",
        operator.url()
    );
    let mut settings = naming(&receiver, &more);
    let hosts = format!("[\"{}\", \"{}\"]", receiver.address, operator.address);
    settings.more = settings.more.replace(&format!("[\"{}\"]", receiver.address), &hosts);
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    sim.fault_submit(json!({ "code": "ERROR_PAGEURL" }), false).await;
    gateway.solve(challenge(&receiver.url()), Some("one")).await;
    let told = receiver.first().await;
    assert!(told.is_signed_with("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"), "{}", told.head);
    assert!(told.is_signed_with("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"), "by both secrets");
    let notice = told.json();
    assert_eq!(
        (&notice["type"], &notice["data"]["code"]),
        (&json!("solve.failed"), &json!("ERROR_PAGEURL"))
    );
    sim.fault_submit(json!({ "code": "ERROR_KEY_DOES_NOT_EXIST" }), false).await;
    let call =
        Call::post("/v1/solves", challenge(&receiver.url())).header("idempotency-key", "two");
    gateway.send(&call).await;
    let alert = operator.first().await;
    assert!(alert.is_signed_with("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"), "{}", alert.head);
    let notice = alert.json();
    let expected = (&json!("alert.account"), &json!("ERROR_KEY_DOES_NOT_EXIST"));
    assert_eq!((&notice["type"], &notice["data"]["about"]), expected, "{notice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_not_named_is_refused_at_submit_public_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let (named, other) = (Receiver::start().await, Receiver::start().await);
    let gateway = Gateway::with(dir.path(), &sim, &naming(&named, ""));
    let private = ["https://127.0.0.1/", "https://10.0.0.1/", "https://hooks.example.com/"];
    for url in private.into_iter().chain([&*other.url(), "ftp://hooks.example.com/"]) {
        let refused = gateway.solve(challenge(url), None).await;
        let detail = refused.body["detail"].as_str().unwrap_or_default().to_owned();
        assert!(refused.status.is_client_error(), "{url}: {}", refused.body);
        assert!(detail.contains("the address is refused"), "{url}: {detail}");
        assert!(url.starts_with("ftp") || detail.contains("[callbacks] hosts"), "{url}: {detail}");
    }
    assert_eq!((sim.charges().await, other.received().len()), (0, 0));
}

/// Worker two signs and sends as it is configured now; worker one as `[callbacks]` says.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_callbacks_of_its_own_has_its_own_secret_and_hosts() {
    const OWN: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
    const NEXT: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let (common, own) = (Receiver::start().await, Receiver::start().await);
    let gateway = Gateway::with(dir.path(), &sim, &naming(&common, ""));
    let file = dir.path().join("solvegate.toml");
    let written = fs::read_to_string(&file).unwrap();
    let reload = async |callbacks: &str| {
        let name = "name = \"two\"\n";
        let text = written.replace(name, &format!("{name}callbacks = {{ {callbacks} }}\n"));
        assert_ne!(text, written);
        fs::write(&file, text).unwrap();
        let before = gateway.process.stderr().matches("reload").count();
        gateway.process.signal(Signal::HUP);
        eventually("the reload is logged", async || {
            (gateway.process.stderr().matches("reload").count() > before).then_some(())
        })
        .await;
    };
    let claim = |receiver: &Receiver| Call::post("/v1/solves", challenge(&receiver.url()));
    let own_host = format!("hosts = [\"{}\"]", own.address);
    reload(&format!("{own_host}, secret = \"{OWN}\"")).await;
    assert_eq!(gateway.send_as_two(&claim(&common)).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(gateway.send(&claim(&own)).await.status, StatusCode::BAD_REQUEST, "of another");
    gateway.send_as_two(&claim(&own)).await;
    assert!(own.first().await.is_signed_with(OWN));
    gateway.send(&claim(&common)).await;
    let told = common.first().await;
    assert!(told.is_signed_with(&made_secret(dir.path())) && !told.is_signed_with(OWN));

    // A mistake changes nothing; then both secrets sign while one replaces the other.
    reload(&format!("{own_host}, secret = \"whsec_short\"")).await;
    let said = gateway.process.stderr();
    assert!(said.contains("[[worker]] two callbacks secret: it is not base64"), "{said}");
    reload(&format!("{own_host}, secret = [\"{NEXT}\", \"{OWN}\"]")).await;
    gateway.send_as_two(&claim(&own).header("idempotency-key", "next")).await;
    let told = eventually("the next notice", async || own.received().get(1).cloned()).await;
    assert!(told.is_signed_with(OWN) && told.is_signed_with(NEXT), "{}", told.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_place_to_keep_a_secret_callbacks_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:"];
    let gateway = Process::start(command(dir.path(), &serve));
    let base = gateway.line_after("is listening on ");
    let key = Secret::new(gateway.key_in_file(dir.path(), "worker key:"));
    let call = Call::post("/v1/solves", challenge("https://hooks.example.com/"));
    let refused = Remote::new(&base, key, None).unwrap().send(&call).await.unwrap();
    assert!(refused.status.is_client_error(), "{}", refused.body);
    let detail = refused.body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("[callbacks] secret"), "{}", refused.body);
}
