//! in.php and res.php of the simulated provider: `server` passes a form in, the account processes it, and `broken` sends the
//! reply, intact or with a fault.

use domain::{challenge::Kind, id::TaskId, ports::Feedback, retry::Code, time::Timestamp};
use tokio::sync::mpsc;
use wire::{
    ReplyStyle, fetch,
    fetch::Action,
    form::{BadForm, Form},
    submit,
};

use crate::{
    behaviour::{PollEffect, SubmitEffect},
    broken::Reply,
    faults::{Call, Fault, Planned},
    pingback::{CallbackAddress, Due},
    server::Front,
};

/// Answers in.php.
pub(crate) fn submit(
    front: &Front,
    calls: &mpsc::Sender<Due>,
    form: Result<Form, BadForm>,
    struck: Option<&Planned>,
) -> Reply {
    let now = front.clock.now();
    let style = form.as_ref().map(ReplyStyle::of).unwrap_or_default();
    let form = checked(front, form, now);
    let pingback = form.as_ref().ok().and_then(|form| form.get("pingback").map(str::to_owned));
    let text = match form.and_then(|form| submit::read(&form).map_err(|refused| refused.code)) {
        Ok(read) => {
            let effect = front.account.submit(&read.challenge, None, struck, now);
            if let (Some(address), Some(SubmitEffect::Accepted(accepted))) = (pingback, &effect) {
                call_back(front, calls, &address, &accepted.task);
            }
            effect.map(|effect| submit_text(front, read.challenge.kind(), effect, style.json))
        }
        Err(code) => {
            front.account.with(|behaviour| behaviour.refuse_unseen(code.clone(), now));
            Some(fetch::write_refusal(&code, style.json))
        }
    };
    styled(text.unwrap_or_default(), style)
}

/// Schedules the pingback for a task, whether or not the reply to the submission arrives.
fn call_back(front: &Front, calls: &mpsc::Sender<Due>, address: &str, task: &TaskId) {
    let Some(at) = front.account.with(|behaviour| behaviour.over_at(task.as_str())) else { return };
    let Some(address) = CallbackAddress::parse(address) else {
        tracing::warn!(%task, "pingback refused, its address is not on this machine");
        return;
    };
    if calls.try_send(Due { task: task.clone(), at, address }).is_err() {
        tracing::warn!(%task, "pingback refused, queue full");
    }
}

/// Answers res.php; also returns the fault for the reply.
pub(crate) fn fetch(front: &Front, form: Result<Form, BadForm>) -> (Option<Planned>, Reply) {
    let now = front.clock.now();
    let style = form.as_ref().map(ReplyStyle::of).unwrap_or_default();
    let read = checked(front, form, now).and_then(|form| fetch::read(&form));
    let read = match front.account.banned(now) {
        Some(code) => Err(code),
        None => read,
    };
    let action = match read {
        Ok(read) => read.action,
        Err(code) => return (None, styled(fetch::write_refusal(&code, style.json), style)),
    };
    let struck = front.account.draw(call(&action));
    let text = match struck.as_ref().map(|struck| &struck.fault) {
        Some(Fault::Code(code)) => fetch::write_refusal(code, style.json),
        Some(_) | None => act(front, &action, struck.as_ref(), style.json).unwrap_or_default(),
    };
    (struck, styled(text, style))
}

/// The form, if its key is valid.
fn checked(front: &Front, form: Result<Form, BadForm>, now: Timestamp) -> Result<Form, Code> {
    let form = form.map_err(|_| Code::from(wire::code::ERROR_BAD_PARAMETERS))?;
    front.account.with(|behaviour| behaviour.check_key(form.get("key"), now))?;
    Ok(form)
}

fn styled(text: String, style: ReplyStyle) -> Reply {
    Reply { text, is_json: style.json, allow_origin: style.header_acao }
}

fn call(action: &Action) -> Call {
    match action {
        Action::Get(_) | Action::GetMany(_) | Action::GetPriced(_) => Call::Poll,
        Action::Balance | Action::Threads | Action::Report { .. } | Action::Other(_) => {
            Call::Account
        }
    }
}

fn submit_text(front: &Front, kind: &Kind, effect: SubmitEffect, json: bool) -> String {
    let reply = match effect {
        SubmitEffect::Accepted(accepted) => submit::SubmitReply::Accepted(accepted.task),
        SubmitEffect::Refused(code) => submit::SubmitReply::Refused(code),
    };
    let is_recaptcha = matches!(kind, Kind::RecaptchaV2 | Kind::RecaptchaV3);
    let captchaai = front.account.with(|behaviour| behaviour.config.captchaai);
    if json && captchaai && is_recaptcha {
        return submit::write_reply_int_id(&reply);
    }
    submit::write_reply(&reply, json)
}

/// Processes an action; `None` if a fault loses it.
fn act(front: &Front, action: &Action, struck: Option<&Planned>, json: bool) -> Option<String> {
    let now = front.clock.now();
    let poll = |id: &str| front.account.poll(id, struck, now);
    let reply = match action {
        Action::Get(id) => Ok(poll_text(poll(id)?, json, false)),
        Action::GetPriced(id) => Ok(poll_text(poll(id)?, json, true)),
        Action::GetMany(ids) => {
            let ids = ids.iter().map(String::as_str);
            front.account.poll_many(ids, struck, now)?.map(|effects| {
                let replies: Vec<_> = effects.into_iter().map(poll_reply).collect();
                fetch::write_many(&replies, json)
            })
        }
        Action::Balance => {
            Ok(fetch::write_balance(front.account.with(|behaviour| behaviour.balance()), json))
        }
        Action::Threads => {
            front.account.with(|behaviour| behaviour.threads_info(now)).map(fetch::write_threads)
        }
        Action::Report { id, good } => {
            let feedback = if *good { Feedback::Good } else { Feedback::Bad };
            let reported = front.account.with(|behaviour| behaviour.report(id, feedback, now));
            reported.map(|()| fetch::write_report(json))
        }
        Action::Other(_) => Err(wire::code::ERROR_EMPTY_ACTION.into()),
    };
    Some(reply.unwrap_or_else(|code| fetch::write_refusal(&code, json)))
}

fn poll_text(effect: PollEffect, json: bool, priced: bool) -> String {
    match effect {
        PollEffect::Solved(made, _) if made.as_result && json => fetch::write_result(&made.answer),
        effect @ (PollEffect::Solved(..) | PollEffect::NotReady | PollEffect::Refused(_)) => {
            fetch::write_reply(&poll_reply(effect), json, priced)
        }
    }
}

pub(crate) fn poll_reply(effect: PollEffect) -> fetch::FetchReply {
    match effect {
        PollEffect::NotReady => fetch::FetchReply::NotReady,
        PollEffect::Solved(made, cost) => {
            fetch::FetchReply::Answer { answer: made.answer, price: Some(cost) }
        }
        PollEffect::Refused(code) => fetch::FetchReply::Refused(code),
    }
}
