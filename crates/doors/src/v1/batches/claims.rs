//! One line of a batch: parse, admit, wait, answer. Called by the window in mod.rs.

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use domain::{
    key::KeyDigest,
    ports::{Clock, Scope},
    time::Timestamp,
};
use engine::{Admitted, ClaimRefusal, ClaimRequest, FetchRefusal, Outcome};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::{outcome, request::SolveBody, solves::Arrival};
use crate::{
    Doors,
    caller::AuthError,
    error::{Refusal, seconds},
    peer::Peer,
    worker::KnownWorker,
};

/// The worker whose batch it is. Its key is looked up for each line, because it may be withdrawn meanwhile.
#[derive(Clone)]
pub(super) struct BatchCaller {
    pub(super) key: KeyDigest,
    pub(super) peer: Option<Peer>,
}

/// The end of an admission.
pub(super) struct Step {
    /// The length of the line.
    pub(super) bytes: usize,
    /// No further line can be admitted.
    pub(super) ends_batch: bool,
    pub(super) result: Result<AdmittedLine, Answer>,
}

/// A line with its claim.
pub(super) struct AdmittedLine {
    number: u64,
    id: String,
    outcome: Outcome,
    arrival: Arrival,
}

/// The answer to a line.
#[derive(Serialize)]
pub(super) struct Answer {
    line: u64,
    /// `None` when the line has none that can be read.
    id: Option<String>,
    /// The HTTP status that `POST /v1/solves` would have.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    solve: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// How long a line that was refused for now waits before it tries again.
const RETRY: Duration = Duration::from_millis(500);

/// Admits the claim of a line. What only lacks room or the store at the moment waits, up to the claim's deadline.
pub(super) async fn admit(doors: Doors, caller: BatchCaller, number: u64, text: Bytes) -> Step {
    let bytes = text.len();
    let mut id = None;
    let result = try_admit(&doors, &caller, &text, &mut id).await;
    let ends_batch =
        matches!(result, Err(Refusal::Unauthorized | Refusal::Claim(ClaimRefusal::Draining)));
    let result = match result {
        Ok((outcome, arrival)) => {
            Ok(AdmittedLine { number, id: id.unwrap_or_default(), outcome, arrival })
        }
        Err(refusal) => Err(Answer::refused(number, id, &refusal, doors.now())),
    };
    Step { bytes, ends_batch, result }
}

async fn try_admit(
    doors: &Doors,
    caller: &BatchCaller,
    text: &[u8],
    id: &mut Option<String>,
) -> Result<(Outcome, Arrival), Refusal> {
    let parsed = parse(doors, caller, text, id)?;
    let patience = parsed.deadline.unwrap_or(doors.engine().config().deadline);
    take_permit(doors, caller).await?;
    let until = doors.now().plus(patience);
    let mut request = parsed;
    loop {
        match doors.engine().claim(request).await {
            Ok(Admitted { outcome, replayed }) => {
                let arrival = Arrival::new(&outcome, replayed);
                return Ok((outcome, arrival));
            }
            Err(refusal) if is_temporary(&refusal) && doors.now() < until => {}
            Err(refusal) => return Err(refusal.into()),
        }
        pause(doors, RETRY).await;
        // Parsed again instead of kept: a second copy of every picture would cost more.
        request = parse(doors, caller, text, id)?;
    }
}

/// The line as a claim, under the declarations of its worker at this moment.
fn parse(
    doors: &Doors,
    caller: &BatchCaller,
    text: &[u8],
    id: &mut Option<String>,
) -> Result<ClaimRequest, Refusal> {
    let mut body = SolveBody::parse(text, doors.limits())?;
    let key = body.take_id();
    id.clone_from(&key);
    let key = key.ok_or(Refusal::NoLineId)?;
    let known = caller.known(doors)?;
    super::super::request::check_key(&key)?;
    let address = caller.peer.as_ref().map(|peer| peer.address().to_canonical());
    Ok(ClaimRequest { address, ..body.into_claim(&known.worker, Some(key))? })
}

/// Takes a permit of the worker's rate, waiting for it.
async fn take_permit(doors: &Doors, caller: &BatchCaller) -> Result<(), Refusal> {
    while let Err(wait) = doors.permit(caller.known(doors)?.claims.as_ref()) {
        pause(doors, wait).await;
    }
    Ok(())
}

/// Whether the same claim may be admitted in a moment: other solves end, or the store comes back.
fn is_temporary(refusal: &ClaimRefusal) -> bool {
    match refusal {
        ClaimRefusal::Busy { .. } | ClaimRefusal::TooLate { .. } | ClaimRefusal::Store(_) => true,
        ClaimRefusal::Site(_)
        | ClaimRefusal::KeyMismatch(_)
        | ClaimRefusal::Key(_)
        | ClaimRefusal::OverBudget { .. }
        | ClaimRefusal::Callback(_)
        | ClaimRefusal::Draining => false,
    }
}

async fn pause(doors: &Doors, length: Duration) {
    let clock: &dyn Clock = doors.engine().clock();
    clock.sleep_until(clock.now().plus(length)).await;
}

/// Waits for the end of a line's claim.
pub(super) async fn wait(doors: Doors, caller: BatchCaller, line: AdmittedLine) -> Answer {
    let AdmittedLine { number, id, outcome, arrival } = line;
    let ended = match end_of(&doors, &caller, outcome).await {
        Ok(outcome) => outcome::settled(&doors, arrival.outcome_for_caller(outcome)),
        Err(refusal) => Err(refusal),
    };
    match ended {
        Ok(solve) => Answer {
            line: number,
            id: Some(id),
            status: StatusCode::OK.as_u16(),
            solve: Some(solve),
            error: None,
        },
        Err(refusal) => Answer::refused(number, Some(id), &refusal, doors.now()),
    }
}

/// `Waiting` is returned only at the end of a drain.
async fn end_of(doors: &Doors, caller: &BatchCaller, outcome: Outcome) -> Result<Outcome, Refusal> {
    let Outcome::Waiting { claim, .. } = &outcome else { return Ok(outcome) };
    let (id, scope) = (claim.id, Scope::Worker(claim.worker.clone()));
    // The sweep ends a claim within a second of its deadline.
    let until = claim.deadline.plus(doors.limits().body_timeout);
    loop {
        let left = until.since(doors.now());
        match doors.fetch(caller.peer.as_ref(), &scope, id, left).await {
            // The claim and its answer are safe in the store.
            Err(FetchRefusal::Store(_)) if doors.now() < until => pause(doors, RETRY).await,
            fetched => return Ok(fetched?),
        }
    }
}

// === impl BatchCaller ===

impl BatchCaller {
    /// The worker as it is now.
    fn known(&self, doors: &Doors) -> Result<std::sync::Arc<KnownWorker>, AuthError> {
        doors.worker_by_digest(self.key).ok_or(AuthError::Unknown)
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn refused(
        line: u64,
        id: Option<String>,
        refusal: &Refusal,
        now: Timestamp,
    ) -> Self {
        let (status, mut error) = refusal.status_and_problem();
        if let Some(wait) = refusal.retry_after(Some(now)) {
            error["retry_after_s"] = json!(seconds(wait));
        }
        Self { line, id, status: status.as_u16(), solve: None, error: Some(error) }
    }

    pub(super) fn to_line(&self) -> Bytes {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text.into()
    }
}
