//! `in.php`: a form becomes a claim, and its id is answered at once; the solve goes on behind the answer.

use axum::{
    extract::{Request, State},
    response::Response,
};
use domain::{claim::Door, id::TaskId, retry::Code};
use engine::Ask;
use wire::{
    code,
    submit::{Reply, Submit},
};

use super::Asked;
use crate::{Doors, claim_of, error, worker::Known};

/// `GET|POST /in.php`.
pub(crate) async fn submit(State(doors): State<Doors>, request: Request) -> Response {
    let asked = match Asked::read(&doors, request).await {
        Ok(asked) => asked,
        Err((code, style)) => return style.refuse(&code),
    };
    let reply = match claim(&doors, &asked).await {
        Ok(id) => Reply::Accepted(id),
        Err(code) => Reply::Refused(code),
    };
    asked.style.response(wire::submit::write_reply(&reply, asked.style.json()))
}

async fn claim(doors: &Doors, asked: &Asked) -> Result<TaskId, Code> {
    let known = asked.worker(doors)?;
    if let Some(meter) = &known.meter {
        meter.take().map_err(|_| Code::from(code::ERROR_TOO_MUCH_REQUESTS))?;
    }
    let submit = wire::submit::read(&asked.form)?;
    let admitted = doors.engine().claim(ask(&known, submit)).await;
    let admitted = admitted.map_err(|refused| error::code_of_claim(&refused))?;
    // The provider's word for what we answer: to the worker our claim is its task.
    Ok(TaskId::new(claim_of(&admitted.outcome).id.to_string())
        .expect("a claim's id is fifteen digits"))
}

fn ask(known: &Known, submit: Submit) -> Ask {
    let worker = &known.worker;
    Ask {
        worker: worker.name.clone(),
        project: worker.project.clone(),
        door: Door::Compat,
        challenge: submit.challenge,
        key: submit.idempotency_key,
        fresh: false,
        deadline: None,
        allowance: worker.allowance,
        narrowing: worker.narrowing.clone(),
        // Only the id is answered: the token is handed out by res.php.
        collect: false,
        callback_url: None,
    }
}
