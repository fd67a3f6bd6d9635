//! The ceilings: the cost of an axum handler and of a waiting loop that do nothing else.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use domain::id::TaskId;
use solvegate::exit::{Exit, Failure};
use tokio::net::TcpListener;

use crate::{remote_store::RemoteStore, requests::ChallengeText, vitals::StoreCounts};

use super::{Hello, MeasuredServer, take_commands};

/// Waiting loops as a client without a gateway would write them.
struct Loops;

/// 194 bytes, about the length of an answer with a short token.
const ANSWER: &str = r#"{"id":"482915037264815","state":"served","kind":"turnstile","token":"0.mF4b1kR9t2Xc7Q0sVvJ8yZ3nL5hW","source":"stock","expires_at":"2026-11-15T12:00:00Z","attempts":1,"polls":2,"cost":"0.00145"}"#;

/// Longer than any bench.
const LONG: Duration = Duration::from_secs(3600);

/// Serves until stdin ends.
pub(super) async fn run(listener: TcpListener, store: Option<String>) -> Result<(), Failure> {
    let hello = Hello { address: listener.local_addr()?, key: String::new() };
    let router = match store {
        None => Router::new().route("/", get(answer)).route("/held", get(held)),
        Some(url) => {
            let remote = RemoteStore::open(url).await?;
            Router::new().route("/", get(query_and_answer)).with_state(Arc::new(remote))
        }
    };
    tokio::select! {
        served = async { axum::serve(listener, router).await } => Ok(served?),
        ended = take_commands(&hello, &Loops) => ended,
    }
}

async fn answer() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], ANSWER)
}

/// One round trip to the store, as the caches in tutorials do.
async fn query_and_answer(
    State(remote): State<Arc<RemoteStore>>,
) -> Result<impl IntoResponse, StatusCode> {
    remote.round_trip().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(answer().await)
}

async fn held() -> impl IntoResponse {
    wait().await;
    answer().await
}

#[expect(clippy::disallowed_methods, reason = "a bare loop has no Clock port: it is the ceiling")]
async fn wait() {
    tokio::time::sleep(LONG).await;
}

impl MeasuredServer for Loops {
    fn counts(&self) -> StoreCounts {
        StoreCounts::default()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a bare loop is a bare task; all end with this process"
    )]
    async fn hold_solves(&self, count: usize) -> Result<(), Failure> {
        for number in 0..count {
            let task = TaskId::new(format!("{number:012}")).map_err(Failure::of(Exit::Failed))?;
            tokio::spawn(poll(ChallengeText::new(), task));
        }
        Ok(())
    }
}

/// Polls until the task is ready, which does not happen during a bench.
async fn poll(asked: ChallengeText, task: TaskId) {
    loop {
        wait().await;
        if asked.sitekey.is_empty() || asked.pageurl.is_empty() || task.as_str().is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_answer_is_as_long_as_the_bars_were_set_for() {
        assert_eq!(ANSWER.len(), 194);
    }
}
