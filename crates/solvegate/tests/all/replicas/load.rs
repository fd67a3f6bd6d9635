//! Workers with one claim each. A worker that gets no answer, or the answer that the store is unavailable, retries with
//! the same key at any gateway, like workers behind a load balancer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use serde_json::{Value, json};
use solvegate::client::{Call, Reply};
use tokio::{sync::Semaphore, task::JoinHandle, time::timeout};

use super::{fleet::Doors, now};
use crate::support::pause;

/// A worker that takes longer waits for ever: this allows for an outage of the store in addition to the claim's
/// deadline.
const PATIENCE: Duration = Duration::from_secs(400);
/// Claims lapse after this.
const DEADLINE_S: u64 = 150;

pub(super) struct Load {
    workers: Vec<JoinHandle<Outcome>>,
    begun: Arc<AtomicUsize>,
}

/// How workers go about their claims.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// No more of them have a claim at once.
    pub(super) at_once: usize,
    /// After which a claim lapses.
    pub(super) deadline_s: u64,
    /// A worker that waited this long for a reply hangs up and asks again.
    pub(super) hangs_up_after: Duration,
    /// One of so many asks again after it has got its token, as if the reply had been lost.
    pub(super) asks_again: Option<usize>,
}

/// The end of one claim, as its worker saw it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) id: Option<String>,
    /// `None` for a claim that failed or lapsed.
    pub(super) token: Option<String>,
    /// `served`, or the code of the error.
    pub(super) end: String,
    pub(super) took: Duration,
    /// The number of answers that the store is unavailable.
    pub(super) away: usize,
}

/// A claim whose name is its key and its site key, so that all ledgers can be joined.
pub(super) fn claim(name: &str) -> Call {
    Call::post("/v1/solves", challenge(name)).header("idempotency-key", name)
}

/// An exclusive challenge.
pub(super) fn challenge(sitekey: &str) -> Value {
    challenge_until(sitekey, DEADLINE_S)
}

fn challenge_until(sitekey: &str, deadline_s: u64) -> Value {
    let page = "https://shop.example.com/";
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": page, "deadline_s": deadline_s })
}

/// Fetches the claim and waits at most `wait_s` seconds.
pub(super) fn fetch(id: &str, wait_s: u64) -> Call {
    Call::get(format!("/v1/solves/{id}?wait={wait_s}")).waiting(Duration::from_secs(wait_s))
}

pub(super) fn id_of(reply: &Reply) -> String {
    reply.body["id"].as_str().unwrap_or_else(|| panic!("no id: {}", reply.body)).to_owned()
}

// === impl Load ===

impl Load {
    /// Starts claims, evenly spread over a time.
    pub(super) fn start(doors: &Doors, claims: usize, over: Duration) -> Self {
        Self::start_as(Manner::default(), doors, claims, over)
    }

    /// The same with workers of this manner.
    pub(super) fn start_as(manner: Manner, doors: &Doors, claims: usize, over: Duration) -> Self {
        let gap = over / u32::try_from(claims).unwrap();
        let starts = (0..).map(|n| gap * n);
        let permits = Arc::new(Semaphore::new(manner.at_once));
        let begun = Arc::new(AtomicUsize::new(0));
        let worker = |(n, start): (usize, Duration)| {
            let (doors, permits, begun) = (doors.clone(), permits.clone(), begun.clone());
            spawn(async move {
                pause(start).await;
                let _permit = permits.acquire().await.unwrap();
                begun.fetch_add(1, Ordering::Relaxed);
                manner.work(&doors, &format!("claim-{n}")).await
            })
        };
        Self { workers: (0..claims).zip(starts).map(worker).collect(), begun }
    }

    /// Whether a worker has not claimed yet.
    pub(super) fn waits_to_begin(&self) -> bool {
        self.begun.load(Ordering::Relaxed) < self.workers.len()
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
    Manner::default().work(doors, name).await
}

// === impl Manner ===

impl Default for Manner {
    /// Of workers who are patient, and as many as there are claims.
    fn default() -> Self {
        Self {
            at_once: Semaphore::MAX_PERMITS,
            deadline_s: DEADLINE_S,
            hangs_up_after: PATIENCE,
            asks_again: None,
        }
    }
}

impl Manner {
    async fn work(self, doors: &Doors, name: &str) -> Outcome {
        let outcome = self.work_once(doors, name).await;
        if outcome.token.is_some() && self.asks_again.is_some_and(|one| fastrand::usize(..one) == 0)
        {
            let again = self.work_once(doors, name).await;
            assert_eq!(
                (&again.id, &again.token),
                (&outcome.id, &outcome.token),
                "{name} was answered in two ways: {} and {}",
                outcome.end,
                again.end
            );
        }
        outcome
    }

    async fn work_once(self, doors: &Doors, name: &str) -> Outcome {
        let start = now();
        let body = challenge_until(name, self.deadline_s);
        let mut call = Call::post("/v1/solves", body).header("idempotency-key", name);
        let (mut id, mut away) = (None, 0);
        loop {
            let took = start.elapsed();
            assert!(took < PATIENCE, "{name} ({id:?}) still waits");
            let reply =
                timeout(self.hangs_up_after, doors.any().try_send(&call)).await.ok().flatten();
            match reply.as_ref().map(|reply| (reply.status, &reply.body)) {
                Some((StatusCode::ACCEPTED, body)) => {
                    let new_id = body["id"].as_str().unwrap().to_owned();
                    assert!(id.as_ref().is_none_or(|known| *known == new_id), "{name} has two ids");
                    call = fetch(&new_id, 5);
                    id = Some(new_id);
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
                // The gateway is down, or died before it answered.
                None => pause(Duration::from_millis(100)).await,
                Some((_, body)) => {
                    let end = body["code"].as_str().unwrap_or("no code").to_owned();
                    return Outcome { id, token: None, end, took, away };
                }
            }
        }
    }
}
