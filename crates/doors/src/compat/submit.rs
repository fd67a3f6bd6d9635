//! `in.php`: makes a claim of a form and replies with its id at once; the solve continues in the background.

use axum::{
    extract::{Request, State},
    response::Response,
};
use domain::{
    claim::{Claim, Door},
    id::TaskId,
    retry::Code,
};
use engine::{ClaimRefusal, ClaimRequest};
use wire::{
    code,
    submit::{RefusedForm, Submit, SubmitReply},
};

use super::{CompatCall, reply};
use crate::{Doors, ended::time_to_reopen, error, peer::Peer, worker::KnownWorker};

/// `GET|POST /in.php`.
pub(crate) async fn submit(State(doors): State<Doors>, request: Request) -> Response {
    let call = match CompatCall::read(&doors, request, doors.limits().form_bytes).await {
        Ok(call) => call,
        Err((code, style)) => return reply::refuse(style, &code),
    };
    let json = call.style.json;
    let (body, wait) = match claim(&doors, &call).await {
        Ok(claim) => {
            let wait = time_to_reopen(doors.engine(), &claim, doors.now());
            (wire::submit::write_reply(&SubmitReply::Accepted(task_of(&claim)), json), wait)
        }
        Err(Refused { code, why: None }) => (code::write(&code, json), None),
        Err(Refused { code, why: Some(why) }) => (code::write_explained(&code, &why, json), None),
    };
    reply::with_retry_after(reply::respond(call.style, body), wait)
}

/// The code for the worker's program, and the reason in words where the operator or the caller can do something about it.
struct Refused {
    code: Code,
    why: Option<String>,
}

impl From<Code> for Refused {
    fn from(code: Code) -> Self {
        Self { code, why: None }
    }
}

impl From<RefusedForm> for Refused {
    fn from(form: RefusedForm) -> Self {
        Self { code: form.code, why: Some(form.why.to_string()) }
    }
}

impl From<ClaimRefusal> for Refused {
    fn from(refusal: ClaimRefusal) -> Self {
        let why = matches!(refusal, ClaimRefusal::Site(_)).then(|| refusal.to_string());
        Self { code: error::code_of_claim(&refusal), why }
    }
}

/// In the provider's protocol, our claim is the worker's task.
fn task_of(claim: &Claim) -> TaskId {
    TaskId::new(claim.id.to_string()).expect("a claim's id is fifteen digits")
}

async fn claim(doors: &Doors, call: &CompatCall) -> Result<Claim, Refused> {
    let known = call.worker(doors)?;
    doors
        .take(&known, known.claims.as_ref(), call.peer.as_ref())
        .map_err(|_| Code::from(code::ERROR_TOO_MUCH_REQUESTS))?;
    let submit = wire::submit::read(&call.form)?;
    let admitted = doors.engine().claim(claim_request(&known, submit, call.peer.as_ref())).await?;
    Ok(admitted.outcome.claim().clone())
}

fn claim_request(known: &KnownWorker, submit: Submit, peer: Option<&Peer>) -> ClaimRequest {
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
        address: peer.map(|peer| peer.address().to_canonical()),
    }
}
