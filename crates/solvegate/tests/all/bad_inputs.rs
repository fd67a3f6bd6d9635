//! Hostile inputs as data: each case in `fixtures/bad_inputs.json` is a request and the required result.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};
use solvegate::client::Call;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::support::{ADMIN, Gateway, Settings, Sim, WORKER, WORKER_TWO, eventually, pause};

/// One hostile request and the expected answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    category: String,
    request: Sent,
    /// Any of these.
    status: Option<Vec<u16>>,
    /// The `code` of the problem.
    error: Option<String>,
    /// The number of submissions it leads to.
    submits: Option<u64>,
    /// The page as it is forwarded.
    canonical: Option<String>,
    /// Texts that the answer must not contain.
    #[serde(default)]
    must_not_body: Vec<String>,
    /// Texts of which the answer must contain one.
    body_any: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    method: Option<String>,
    path: Option<String>,
    auth: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    raw_headers: Vec<(String, String)>,
    json: Option<Value>,
    body: Option<String>,
    body_b64: Option<String>,
    body_gen: Option<Generated>,
    raw: Option<String>,
    repeat: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct Generated {
    prefix: String,
    unit: String,
    times: usize,
    suffix: String,
}

/// The answer; status 0 when the connection was closed without one.
struct Answer {
    status: u16,
    text: String,
}

/// The placeholders in the cases.
struct Words(Vec<(&'static str, String)>);

// === impl Words ===

impl Words {
    fn new(claim_of_one: String) -> Self {
        Self(vec![
            ("{WORKER[:-1]}", WORKER[..31].to_owned()),
            ("{WORKER^^}", WORKER.to_uppercase()),
            ("{WORKER2}", WORKER_TWO.to_owned()),
            ("{WORKER}", WORKER.to_owned()),
            ("{ADMIN}", ADMIN.to_owned()),
            ("{TASK_OF_WORKER1}", claim_of_one),
        ])
    }

    /// Replaces placeholders, and `{{x*N}}` by N times x.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            filled.push_str(before);
            let repeated = after.split_once("}}").and_then(|(inside, after)| {
                let (unit, times) = inside.rsplit_once('*')?;
                Some((unit.repeat(times.parse().ok()?), after))
            });
            if let Some((repeated, after)) = repeated {
                filled.push_str(&repeated);
                rest = after;
            } else {
                filled.push_str("{{");
                rest = after;
            }
        }
        filled.push_str(rest);
        self.0.iter().fold(filled, |text, (name, value)| text.replace(name, value))
    }

    /// Replaces placeholders in all strings of a JSON value, including member names.
    fn fill_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_json(item)).collect(),
            Value::Object(members) => {
                let filled =
                    |(name, value): (&String, &Value)| (self.fill(name), self.fill_json(value));
                Value::Object(members.iter().map(filled).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

// === impl Sent ===

impl Sent {
    fn bytes(&self, words: &Words, host: &str) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return words
                .fill(raw)
                .chars()
                .map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'))
                .collect();
        }
        let body = self.body(words);
        let path = words.fill(self.path.as_deref().unwrap());
        let mut head =
            format!("{} {} HTTP/1.1\r\n", self.method.as_deref().unwrap(), escaped(&path));
        let mut headers: Vec<(String, String)> = self.headers.clone().into_iter().collect();
        headers.extend(self.raw_headers.clone());
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            headers.push(("host".into(), host.into()));
        }
        let key = match self.auth.as_deref() {
            Some("worker") => Some(WORKER),
            Some("worker2") => Some(WORKER_TWO),
            Some("admin") => Some(ADMIN),
            _ => None,
        };
        headers.extend(key.map(|key| ("authorization".into(), format!("Bearer {key}"))));
        headers.push(("content-length".into(), body.len().to_string()));
        for (name, value) in headers {
            write!(head, "{name}: {}\r\n", words.fill(&value)).unwrap();
        }
        [head.as_bytes(), b"\r\n", &body].concat()
    }

    fn body(&self, words: &Words) -> Vec<u8> {
        if let Some(json) = &self.json {
            return words.fill_json(json).to_string().into_bytes();
        }
        if let Some(body) = &self.body_b64 {
            return STANDARD.decode(words.fill(body)).unwrap();
        }
        if let Some(made) = &self.body_gen {
            return [&*made.prefix, &made.unit.repeat(made.times), &made.suffix]
                .concat()
                .into_bytes();
        }
        self.body.as_deref().map_or(Vec::new(), |body| words.fill(body).into_bytes())
    }
}

/// Percent-encodes the bytes that cannot be in a request line, and leaves everything else as it is.
fn escaped(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"^`|\\".contains(&b);
    path.bytes().fold(String::new(), |mut text, b| {
        if plain(b) {
            text.push(char::from(b));
        } else {
            write!(text, "%{b:02X}").unwrap();
        }
        text
    })
}

async fn talk(host: &str, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(host).await.unwrap();
    let mut received = Vec::new();
    let exchange = async {
        // The gateway may close the connection before it has read everything, which counts as an answer.
        let _closed = stream.write_all(request).await.is_err();
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            received.extend_from_slice(&buffer[..count]);
            if is_whole(&received) {
                break;
            }
        }
    };
    // Some cases leave the gateway waiting for more: the bytes received until then count.
    let _in_time = timeout(Duration::from_secs(6), exchange).await.is_ok();
    let text = String::from_utf8_lossy(&received).into_owned();
    let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, text }
}

fn is_whole(received: &[u8]) -> bool {
    let text = String::from_utf8_lossy(received);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let lower = head.to_ascii_lowercase();
    let length = lower
        .split_once("content-length: ")
        .and_then(|(_, rest)| rest.lines().next()?.parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../fixtures/bad_inputs.json")).unwrap()
}

/// Describes a wrong answer.
fn complaint(case: &Case, answer: &Answer, words: &Words) -> Option<String> {
    if case.status.as_ref().is_some_and(|wanted| !wanted.contains(&answer.status)) {
        return Some(format!(
            "status {} is not in {:?}\n{}",
            answer.status, case.status, answer.text
        ));
    }
    if case.status.is_none() && answer.status >= 500 {
        return Some(format!("status {}\n{}", answer.status, answer.text));
    }
    // The size limit applies before the content is parsed.
    let is_problem = answer.text.contains("application/problem+json");
    if let Some(error) = case.error.as_ref().filter(|_| is_problem && answer.status != 413)
        && !answer.text.contains(&format!("\"code\":\"{error}\""))
    {
        return Some(format!("the code is not {error}\n{}", answer.text));
    }
    if let Some(any) = &case.body_any
        && !any.iter().any(|one| answer.text.contains(one))
    {
        return Some(format!("none of {any:?} in\n{}", answer.text));
    }
    let leaked = case.must_not_body.iter().find(|text| answer.text.contains(&words.fill(text)));
    leaked.map(|text| format!("leaks {text}"))
}

/// Sends one case as many times as it says; complaints include its name.
async fn check(case: &Case, words: &Words, host: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for n in 0..case.request.repeat.unwrap_or(1) {
        let text = case.request.bytes(words, host);
        let request = replaced(&text, b"{i}", n.to_string().as_bytes());
        let answer = talk(host, &request).await;
        complaints.extend(
            complaint(case, &answer, words)
                .map(|what| format!("{} / {}: {what}", case.category, case.name)),
        );
    }
    complaints
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    match bytes.windows(from.len()).position(|window| window == from) {
        Some(at) => [&bytes[..at], to, &bytes[at + from.len()..]].concat(),
        None => bytes.to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hostile_input_gets_a_clear_answer_and_spends_nothing_it_should_not() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let gateway = Gateway::with(dir.path(), &sim, &Settings::default());
    let host = gateway.base.strip_prefix("http://").unwrap();
    let own =
        json!({ "kind": "turnstile", "sitekey": "own", "pageurl": "https://shop.example.com/" });
    let first = gateway.solve(own, None).await;
    let words = Words::new(first.body["id"].as_str().unwrap().to_owned());
    let (spending, free): (Vec<_>, Vec<_>) =
        cases().into_iter().partition(|case| case.submits != Some(0));
    let mut complaints = Vec::new();
    for case in &free {
        complaints.extend(check(case, &words, host).await);
    }
    // Submissions happen after the answer, so wait for them to appear.
    pause(Duration::from_millis(1_500)).await;
    let ledger = sim.ledger().await;
    let paid: Vec<_> = ledger.accepted.iter().map(|task| task.sitekey.clone()).collect();
    assert_eq!(ledger.received_submits, 1, "hostile inputs were paid for: {paid:?}");
    for case in &spending {
        complaints.extend(check(case, &words, host).await);
        if let Some(canonical) = &case.canonical {
            forwarded(&gateway, case, canonical).await;
        }
    }
    assert!(
        complaints.is_empty(),
        "{} complaints\n{}",
        complaints.len(),
        complaints.join("\n---\n")
    );
    assert_eq!(talk(host, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.status, 200);
    assert!(!gateway.process.stderr().contains("panicked"), "a hostile input caused a panic");
}

/// The page is kept and forwarded in its canonical form, and submitted once.
async fn forwarded(gateway: &Gateway, case: &Case, canonical: &str) {
    let sitekey = case.request.json.as_ref().unwrap()["sitekey"].as_str().unwrap();
    let path = format!("/v1/history?sitekey={sitekey}");
    let served = eventually(&case.name, async || {
        let body = gateway.send(&Call::get(&path)).await.body;
        (body["items"][0]["state"] == "served").then_some(body)
    })
    .await;
    assert_eq!(served["items"][0]["pageurl"], canonical, "{}", case.name);
    assert_eq!(served["items"][0]["attempts"], 1, "{}", case.name);
}
