//! Workers with one claim each. A worker that gets no answer, or hears that the store is away, asks again with the same
//! key, at whichever gateway: as the workers of a team do behind a balancer.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use solvegate::client::{Call, Reply};
use tokio::task::JoinHandle;

use super::{fleet::Doors, now};
use crate::support::pause;

/// A worker that is not done after this waits for ever: the store may have been away for a while beside its claim's deadline.
const PATIENCE: Duration = Duration::from_secs(400);
/// Claims lapse after this.
const DEADLINE_S: u64 = 150;

/// Workers at work.
pub(super) struct Load {
    workers: Vec<JoinHandle<Outcome>>,
}

/// What became of one claim, as its worker saw it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) id: Option<String>,
    /// The token; none for a claim that failed or lapsed.
    pub(super) token: Option<String>,
    /// How it ended: `served`, or the code of the refusal.
    pub(super) end: String,
    pub(super) took: Duration,
    /// How often the store was said to be away.
    pub(super) away: usize,
}

/// One worker's claim: the name is its key and its site key, so that all ledgers can be joined.
pub(super) fn claim(name: &str) -> Call {
    Call::post("/v1/solves", challenge(name)).header("idempotency-key", name)
}

/// A single-use challenge of its own.
pub(super) fn challenge(sitekey: &str) -> Value {
    let page = "https://shop.example.com/";
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": page, "deadline_s": DEADLINE_S })
}

/// The claim once more, held at most so many seconds.
pub(super) fn fetch(id: &str, wait_s: u64) -> Call {
    Call::get(format!("/v1/solves/{id}?wait={wait_s}")).waiting(Duration::from_secs(wait_s))
}

pub(super) fn id_of(reply: &Reply) -> String {
    reply.body["id"].as_str().unwrap_or_else(|| panic!("no id: {}", reply.body)).to_owned()
}

// === impl Load ===

impl Load {
    /// So many claims, evenly spread over a time.
    pub(super) fn start(doors: &Doors, claims: usize, over: Duration) -> Self {
        let gap = over / u32::try_from(claims).unwrap();
        let starts = (0..).map(|n| gap * n);
        let worker = |(n, start): (usize, Duration)| {
            let doors = doors.clone();
            spawn(async move {
                pause(start).await;
                work(&doors, &format!("claim-{n}")).await
            })
        };
        Self { workers: (0..claims).zip(starts).map(worker).collect() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the last worker is done.
    pub(super) async fn outcomes(self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for worker in self.workers {
            outcomes.push(worker.await.unwrap());
        }
        outcomes
    }
}

#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
fn spawn(work: impl Future<Output = Outcome> + Send + 'static) -> JoinHandle<Outcome> {
    tokio::spawn(work)
}

/// Claims and fetches until the claim has ended.
pub(super) async fn work(doors: &Doors, name: &str) -> Outcome {
    let start = now();
    let mut ask = claim(name);
    let (mut id, mut away) = (None, 0);
    loop {
        let took = start.elapsed();
        assert!(took < PATIENCE, "{name} ({id:?}) still waits");
        let reply = doors.any().try_send(&ask).await;
        match reply.as_ref().map(|reply| (reply.status, &reply.body)) {
            Some((StatusCode::ACCEPTED, body)) => {
                let told = body["id"].as_str().unwrap().to_owned();
                assert!(id.as_ref().is_none_or(|known| *known == told), "{name} has two ids");
                ask = fetch(&told, 5);
                id = Some(told);
            }
            Some((StatusCode::OK, body)) => {
                let token = body["token"].as_str().map(str::to_owned);
                id = body["id"].as_str().map(str::to_owned);
                return Outcome { id, token, end: "served".into(), took, away };
            }
            Some((StatusCode::SERVICE_UNAVAILABLE, body)) => {
                assert_eq!(body["code"], "store_unavailable", "{body}");
                away += 1;
                pause(Duration::from_millis(250)).await;
            }
            // Nobody listens just now, or died with the answer.
            None => pause(Duration::from_millis(100)).await,
            Some((_, body)) => {
                let end = body["code"].as_str().unwrap_or("no code").to_owned();
                return Outcome { id, token: None, end, took, away };
            }
        }
    }
}
