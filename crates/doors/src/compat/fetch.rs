//! `res.php`: answers, prices, balance, threads and reports. A failure of the gateway is answered with `CAPCHA_NOT_READY`,
//! because real clients give up and forget the id at the first reply they do not know. So is a poll beyond the worker's rate,
//! which costs no read of the store.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::{Request, State},
    response::Response,
};
use domain::{
    claim::Claim,
    money::Money,
    ports::{Feedback, Scope},
    retry::Code,
};
use engine::{FetchRefusal, Outcome};
use wire::{
    code,
    fetch::{Action, Fetch, FetchReply},
};

use super::{CompatCall, reply};
use crate::{Doors, ended::time_to_reopen, error, worker::KnownWorker};

/// `GET|POST /res.php`.
pub(crate) async fn fetch(State(doors): State<Doors>, request: Request) -> Response {
    let call = match CompatCall::read(&doors, request, doors.limits().poll_bytes).await {
        Ok(call) => call,
        Err((code, style)) => return reply::refuse(style, &code),
    };
    let mut wait = None;
    match answer(&doors, &call, &mut wait).await {
        Ok(body) => reply::with_retry_after(reply::respond(call.style, body), wait),
        Err(code) => reply::refuse(call.style, &code),
    }
}

/// The body; `wait` gets the time until the key of a failed claim opens it again.
async fn answer(
    doors: &Doors,
    call: &CompatCall,
    wait: &mut Option<Duration>,
) -> Result<String, Code> {
    let known = call.worker(doors)?;
    let scope = Scope::Worker(known.worker.name.clone());
    let Fetch { action, hold, .. } = wire::fetch::read(&call.form)?;
    let json = call.style.json;
    let max = doors.config().hold;
    let hold = hold.map_or(max, |hold| hold.min(max));
    let read = || {
        let taken = doors.take(&known, known.reads.as_ref(), call.peer.as_ref());
        taken.map_err(|_| Code::from(code::ERROR_TOO_MUCH_REQUESTS))
    };
    match action {
        Action::Get(ref id) | Action::GetPriced(ref id) => {
            let is_priced = matches!(action, Action::GetPriced(_));
            let reply = match doors.take(&known, known.polls.as_ref(), call.peer.as_ref()) {
                Ok(()) => poll(doors, call, &scope, id, hold).await,
                Err(_) => NOT_READY,
            };
            *wait = reply.wait;
            Ok(wire::fetch::write_reply(&reply.reply, json, is_priced))
        }
        Action::GetMany(ids) => Ok(many(doors, call, &known, &ids).await),
        // Like an action that the gateway does not have.
        Action::Balance if !known.worker.balance => Err(code::ERROR_BAD_PARAMETERS.into()),
        Action::Balance => {
            read()?;
            balance(doors, json).await
        }
        Action::Threads => {
            read()?;
            Ok(wire::fetch::write_threads(doors.engine().threads()))
        }
        Action::Report { id, good } => {
            read()?;
            report(doors, &scope, &id, good).await.map(|()| wire::fetch::write_report(json))
        }
        Action::Other(_) => Err(code::ERROR_BAD_PARAMETERS.into()),
    }
}

/// The reply to a poll.
struct PollReply {
    reply: FetchReply,
    /// The time until the key of a failed claim opens it again.
    wait: Option<Duration>,
}

const NOT_READY: PollReply = PollReply { reply: FetchReply::NotReady, wait: None };

impl From<FetchReply> for PollReply {
    fn from(reply: FetchReply) -> Self {
        Self { reply, wait: None }
    }
}

/// The reply for one claim, after waiting up to `hold`.
async fn poll(
    doors: &Doors,
    call: &CompatCall,
    scope: &Scope,
    id: &str,
    hold: Duration,
) -> PollReply {
    let refused = |code: &str| PollReply::from(FetchReply::Refused(code.into()));
    let Ok(id) = id.parse() else { return refused(code::ERROR_WRONG_ID_FORMAT) };
    match doors.fetch(call.peer.as_ref(), scope, id, hold).await {
        Ok(outcome) => {
            let wait = time_to_reopen(doors.engine(), outcome.claim(), doors.now());
            PollReply { reply: reply_of(doors, outcome), wait }
        }
        Err(FetchRefusal::NotFound(_)) => refused(code::ERROR_WRONG_CAPTCHA_ID),
        Err(FetchRefusal::Store(error)) => {
            tracing::warn!(%error, "store error, poll answered with not ready");
            NOT_READY
        }
    }
}

/// Every claim ends with a reply, so that clients without a deadline stop polling.
fn reply_of(doors: &Doors, outcome: Outcome) -> FetchReply {
    match outcome {
        Outcome::Waiting { .. } => FetchReply::NotReady,
        Outcome::Served { claim, .. } => served(doors, &claim),
        Outcome::Failed(claim) => {
            FetchReply::Refused(error::code_of_end(&claim, &doors.engine().config().retry))
        }
        Outcome::Lapsed(_) | Outcome::Withdrawn(_) | Outcome::Expired(_) => {
            FetchReply::Refused(code::ERROR_CAPTCHA_UNSOLVABLE.into())
        }
    }
}

fn served(doors: &Doors, claim: &Claim) -> FetchReply {
    match &claim.token {
        Some(token) => {
            FetchReply::Answer { answer: token.answer.clone(), price: price(doors, claim) }
        }
        None => FetchReply::Refused(code::ERROR_CAPTCHA_UNSOLVABLE.into()),
    }
}

/// The price for `get2`: the claim's cost, or else the listed price of its kind. An unknown price is left out, because clients
/// would book a zero as free.
fn price(doors: &Doors, claim: &Claim) -> Option<Money> {
    claim.cost.or_else(|| doors.engine().config().prices.of_kind(&claim.kind))
}

/// Several claims at once, without waiting: a client that polls many polls again anyway. An id that is named several times is
/// read once, and each id counts as a poll.
async fn many(doors: &Doors, call: &CompatCall, known: &KnownWorker, ids: &[String]) -> String {
    let scope = Scope::Worker(known.worker.name.clone());
    let mut found: BTreeMap<&str, FetchReply> = BTreeMap::new();
    for id in ids {
        if found.contains_key(id.as_str()) {
            continue;
        }
        let reply = match doors.take(known, known.polls.as_ref(), call.peer.as_ref()) {
            Ok(()) => poll(doors, call, &scope, id, Duration::ZERO).await,
            Err(_) => NOT_READY,
        };
        found.insert(id, reply.reply);
    }
    let replies: Vec<_> = ids.iter().map(|id| found[id.as_str()].clone()).collect();
    wire::fetch::write_many(&replies, call.style.json)
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

/// A repeated report is accepted and forwarded once: clients disagree on whether a second one is an error.
async fn report(doors: &Doors, scope: &Scope, id: &str, good: bool) -> Result<(), Code> {
    let id = id.parse().map_err(|_| code::ERROR_WRONG_ID_FORMAT)?;
    let feedback = if good { Feedback::Good } else { Feedback::Bad };
    match doors.engine().report(scope, id, feedback, None).await {
        Ok(()) => Ok(()),
        Err(FetchRefusal::NotFound(_)) => Err(code::ERROR_WRONG_CAPTCHA_ID.into()),
        Err(FetchRefusal::Store(_)) => Err(code::ERROR_SERVER_ERROR.into()),
    }
}
