//! `callback_url`: the real webhook sender delivers the end of a claim to a receiver on this machine.

use serde_json::{Value, json};
use simulator::{Call, Fault, Planned};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use crate::{
    client::PATIENCE,
    world::{ADMIN, Setting, WORKER, World, turnstile, until},
};

/// Accepts every notice.
pub(crate) struct Receiver {
    pub(crate) host: String,
    notices: mpsc::UnboundedReceiver<(String, Value)>,
    _listening: JoinSet<()>,
}

impl Receiver {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (tell, notices) = mpsc::unbounded_channel();
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tell.send(take(stream).await).ok();
            }
        });
        Self { host, notices, _listening: listening }
    }

    /// The head and the body of the next notice.
    pub(crate) async fn notice(&mut self) -> (String, Value) {
        timeout(PATIENCE, self.notices.recv()).await.unwrap().unwrap()
    }
}

async fn take(mut stream: TcpStream) -> (String, Value) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut chunk).await.unwrap();
        assert_ne!(count, 0, "the request ended early");
        bytes.extend(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let whole = text
            .split_once("\r\n\r\n")
            .and_then(|(head, body)| Some((head.to_lowercase(), serde_json::from_str(body).ok()?)));
        if let Some(notice) = whole {
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            return notice;
        }
    }
}

/// A world that may call this receiver back.
async fn world_of(receiver: &Receiver) -> World {
    let callback_hosts = Some(vec![receiver.host.clone()]);
    World::with(Setting { callback_hosts, ..Setting::default() }).await
}

fn body(sitekey: &str, url: &str) -> String {
    turnstile(sitekey).replacen('{', &format!(r#"{{"callback_url":"{url}","#), 1)
}

/// Waits until a claim's story has this event.
async fn entry_facts(world: &World, id: &str, event: &str) -> Value {
    until(event, async || {
        let story = world.get(&format!("/v1/solves/{id}/explain"), WORKER).await.json();
        let mut entries = story["entries"].as_array().unwrap().iter();
        let found = entries.find(|entry| entry["event"] == event)?;
        Some(found["facts"].clone())
    })
    .await
}

#[tokio::test]
async fn the_end_of_a_claim_is_called_back_with_its_token_and_recorded() {
    let mut receiver = Receiver::open().await;
    let world = world_of(&receiver).await;
    let url = format!("http://{}/hook?secret=1", receiver.host);
    let id = world.post("/v1/solves", WORKER, &[], &body("0x4A", &url)).await.text("id");
    let (head, notice) = receiver.notice().await;
    assert!(head.starts_with("post /hook?secret=1 "), "{head}");
    assert!(head.contains("webhook-signature: v1,"), "{head}");
    assert!(head.contains(&format!("webhook-id: msg_{id}_served")), "{head}");
    assert_eq!((&notice["type"], &notice["data"]["id"]), (&json!("solve.served"), &json!(id)));
    let token = notice["data"]["token"].as_str().unwrap().to_owned();
    let paid = world.account.ledger().accepted;
    assert_eq!(simulator::task_of(&token).as_ref(), Some(&paid[0].task));
    assert_eq!(entry_facts(&world, &id, "called_back").await, json!({ "tries": 1 }));
    let fetched = world.get(&format!("/v1/solves/{id}"), WORKER).await;
    assert_eq!((fetched.text("token"), world.paid()), (token, 1));
}

#[tokio::test]
async fn a_failure_is_called_back_and_so_is_the_end_of_the_revived_claim() {
    let mut receiver = Receiver::open().await;
    let world = world_of(&receiver).await;
    world.account.plan(Planned::next(Call::Submit, Fault::code("ERROR_BAD_TOKEN_OR_PAGEURL")));
    let url = format!("http://{}/hook", receiver.host);
    let id = world.post("/v1/solves", WORKER, &[], &body("0x4A", &url)).await.text("id");
    let (_, failed) = receiver.notice().await;
    assert_eq!((&failed["type"], &failed["data"]["id"]), (&json!("solve.failed"), &json!(id)));
    assert_eq!(failed["data"]["token"], Value::Null);
    let revived =
        world.post("/v1/dead-letters/revive", ADMIN, &[], r#"{"filter":{}}"#).await.json();
    let (_, served) = receiver.notice().await;
    assert_eq!(served["type"], "solve.served");
    assert_eq!(served["data"]["id"], revived["results"][0]["claim"]);
}

#[tokio::test]
async fn a_private_address_is_refused_with_the_reason_and_nothing_is_paid() {
    let receiver = Receiver::open().await;
    let world = world_of(&receiver).await;
    for (url, why) in [
        ("https://10.0.0.1/hook", "its host is a private address"),
        ("https://169.254.169.254/latest/meta-data", "[callbacks] hosts"),
        ("https://127.0.0.1/", "[callbacks] hosts"),
        ("http://hooks.example.com/", "it is not encrypted"),
        ("hooks.example.com", "it is not an absolute URL"),
    ] {
        let answer = world.post("/v1/solves", WORKER, &[], &body("0x4A", url)).await;
        assert_eq!((answer.status, answer.text("code").as_str()), (400, "callback_refused"));
        let detail = answer.text("detail");
        assert!(detail.contains(why) && !detail.contains(url), "{url}: {detail}");
    }
    assert_eq!(world.paid(), 0);
}

#[tokio::test]
async fn without_callbacks_configured_an_address_is_refused_and_says_what_to_do() {
    let world = World::open().await;
    let request = body("0x4A", "https://hooks.example.com/");
    let answer = world.post("/v1/solves", WORKER, &[], &request).await;
    assert_eq!((answer.status, answer.text("code").as_str()), (400, "callback_refused"));
    assert!(answer.text("detail").contains("[callbacks] secret"), "{answer:?}");
}

#[tokio::test]
async fn a_pingback_on_the_compat_door_is_neither_called_nor_forwarded() {
    let mut receiver = Receiver::open().await;
    let world = world_of(&receiver).await;
    let target = format!(
        "/in.php?key={WORKER}&method=turnstile&sitekey=0x4A&pageurl=https://shop.example.com/\
         &pingback=http://{}/hook",
        receiver.host
    );
    let id = world.php(&target).await.body.replacen("OK|", "", 1);
    let polled = world.php(&format!("/res.php?key={WORKER}&action=get&id={id}")).await;
    assert!(polled.body.starts_with("OK|"), "{polled:?}");
    // The receiver gets only the callback that is requested afterwards.
    let url = format!("http://{}/request", receiver.host);
    world.post("/v1/solves", WORKER, &[], &body("0x4B", &url)).await;
    assert!(receiver.notice().await.0.starts_with("post /request "));
}
