//! `in.php`: makes a claim of a form and replies with its id at once; the solve continues in the background.

use axum::{
    extract::{Request, State},
    response::Response,
};
use domain::{claim::Door, id::TaskId, retry::Code};
use engine::ClaimRequest;
use wire::{
    code,
    submit::{Submit, SubmitReply},
};

use super::{CompatCall, reply};
use crate::{Doors, error, worker::KnownWorker};

/// `GET|POST /in.php`.
pub(crate) async fn submit(State(doors): State<Doors>, request: Request) -> Response {
    let call = match CompatCall::read(&doors, request, doors.limits().form_bytes).await {
        Ok(call) => call,
        Err((code, style)) => return reply::refuse(style, &code),
    };
    let outcome = match claim(&doors, &call).await {
        Ok(id) => SubmitReply::Accepted(id),
        Err(code) => SubmitReply::Refused(code),
    };
    reply::respond(call.style, wire::submit::write_reply(&outcome, call.style.json))
}

async fn claim(doors: &Doors, call: &CompatCall) -> Result<TaskId, Code> {
    let known = call.worker(doors)?;
    doors.take(known.claims.as_ref()).map_err(|_| Code::from(code::ERROR_TOO_MUCH_REQUESTS))?;
    let submit = wire::submit::read(&call.form)?;
    let admitted = doors.engine().claim(claim_request(&known, submit)).await;
    let admitted = admitted.map_err(|refused| error::code_of_claim(&refused))?;
    // In the provider's protocol, our claim is the worker's task.
    Ok(TaskId::new(admitted.outcome.claim().id.to_string())
        .expect("a claim's id is fifteen digits"))
}

fn claim_request(known: &KnownWorker, submit: Submit) -> ClaimRequest {
    let worker = &known.worker;
    ClaimRequest {
        worker: worker.name.clone(),
        project: worker.project.clone(),
        door: Door::Compat,
        challenge: submit.challenge,
        key: submit.idempotency_key,
        fresh: false,
        deadline: None,
        allowance: worker.allowance,
        // The reply is only the id; res.php delivers the token.
        collect: false,
        callback_url: None,
    }
}
