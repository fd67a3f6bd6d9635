//! `res.php`: answers, prices, balance, threads and reports. A poller never sees trouble of ours: real clients give
//! up at the first answer they do not know and forget the id, so trouble is `CAPCHA_NOT_READY`.

use std::time::Duration;

use axum::{
    extract::{Request, State},
    response::Response,
};
use domain::{
    claim::Claim,
    id::ClaimId,
    money::Money,
    ports::{Feedback, Scope},
    retry::Code,
};
use engine::{FetchRefusal, Outcome};
use wire::{
    code,
    fetch::{Action, Fetch, Reply},
};

use super::Asked;
use crate::{Doors, error};

/// `GET|POST /res.php`.
pub(crate) async fn fetch(State(doors): State<Doors>, request: Request) -> Response {
    let asked = match Asked::read(&doors, request).await {
        Ok(asked) => asked,
        Err((code, style)) => return style.refuse(&code),
    };
    match answer(&doors, &asked).await {
        Ok(body) => asked.style.response(body),
        Err(code) => asked.style.refuse(&code),
    }
}

async fn answer(doors: &Doors, asked: &Asked) -> Result<String, Code> {
    let scope = Scope::Worker(asked.worker(doors)?.worker.name.clone());
    let Fetch { action, hold, .. } = wire::fetch::read(&asked.form)?;
    let json = asked.style.json();
    let most = doors.config().hold;
    let hold = hold.map_or(most, |hold| hold.min(most));
    match action {
        Action::Get(id) => {
            let reply = poll(doors, asked, &scope, &id, hold).await;
            Ok(wire::fetch::write_reply(&reply, json, false))
        }
        Action::GetPriced(id) => {
            let reply = poll(doors, asked, &scope, &id, hold).await;
            Ok(wire::fetch::write_reply(&reply, json, true))
        }
        Action::GetMany(ids) => Ok(many(doors, asked, &scope, &ids).await),
        Action::Balance => balance(doors, json).await,
        Action::Threads => Ok(wire::fetch::write_threads(doors.engine().threads())),
        Action::Report { id, good } => {
            report(doors, &scope, &id, good).await.map(|()| wire::fetch::write_report(json))
        }
        Action::Other(_) => Err(code::ERROR_BAD_PARAMETERS.into()),
    }
}

/// One claim's answer, held back for up to `hold`.
async fn poll(doors: &Doors, asked: &Asked, scope: &Scope, id: &str, hold: Duration) -> Reply {
    let Some(id) = claim_id(id) else {
        return Reply::Refused(code::ERROR_WRONG_ID_FORMAT.into());
    };
    match doors.fetch(asked.peer.as_ref(), scope, id, hold).await {
        Ok(outcome) => reply(doors, outcome),
        Err(FetchRefusal::NotFound(_)) => Reply::Refused(code::ERROR_WRONG_CAPTCHA_ID.into()),
        Err(FetchRefusal::Store(error)) => {
            tracing::warn!(%error, "store error, poll answered with not ready");
            Reply::NotReady
        }
    }
}

/// Every claim has an end here, so that clients without one of their own stop asking.
fn reply(doors: &Doors, outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Waiting { .. } => Reply::NotReady,
        Outcome::Served { claim, .. } => served(doors, &claim),
        Outcome::Failed(claim) => {
            Reply::Refused(error::code_of_end(&claim, &doors.engine().config().retry))
        }
        Outcome::Lapsed(_) | Outcome::Withdrawn(_) | Outcome::Expired(_) => {
            Reply::Refused(code::ERROR_CAPTCHA_UNSOLVABLE.into())
        }
    }
}

fn served(doors: &Doors, claim: &Claim) -> Reply {
    match &claim.token {
        Some(token) => Reply::Answer { answer: token.answer.clone(), price: price(doors, claim) },
        None => Reply::Refused(code::ERROR_CAPTCHA_UNSOLVABLE.into()),
    }
}

/// What `get2` tells: what the claim cost, else the listed price of its kind. When neither is known there is no
/// price in the answer: a made-up zero would be booked as one.
fn price(doors: &Doors, claim: &Claim) -> Option<Money> {
    claim.cost.or_else(|| doors.engine().config().prices.get(&claim.kind).copied())
}

/// Several claims at once, as they stand: a client that asks for many comes again anyway.
async fn many(doors: &Doors, asked: &Asked, scope: &Scope, ids: &[String]) -> String {
    let mut replies = Vec::with_capacity(ids.len());
    for id in ids {
        replies.push(poll(doors, asked, scope, id, Duration::ZERO).await);
    }
    wire::fetch::write_many(&replies, asked.style.json())
}

async fn balance(doors: &Doors, json: bool) -> Result<String, Code> {
    match doors.engine().balance().await {
        Ok(balance) => Ok(wire::fetch::write_balance(balance, json)),
        Err(fault) => {
            tracing::warn!(%fault, "failed to read the provider's balance");
            Err(fault.code.unwrap_or_else(|| code::ERROR_SERVER_ERROR.into()))
        }
    }
}

/// Repeated reports are taken and passed on once: clients disagree whether a second one is an error.
async fn report(doors: &Doors, scope: &Scope, id: &str, good: bool) -> Result<(), Code> {
    let id = claim_id(id).ok_or(code::ERROR_WRONG_ID_FORMAT)?;
    let feedback = if good { Feedback::Good } else { Feedback::Bad };
    match doors.engine().report(scope, id, feedback).await {
        Ok(()) => Ok(()),
        Err(FetchRefusal::NotFound(_)) => Err(code::ERROR_WRONG_CAPTCHA_ID.into()),
        Err(FetchRefusal::Store(_)) => Err(code::ERROR_SERVER_ERROR.into()),
    }
}

fn claim_id(text: &str) -> Option<ClaimId> {
    text.parse().ok()
}
