//! The reply of in.php. Parsing is strict, because it decides about money: only a well-formed acceptance or refusal counts. With
//! anything else (HTML, nothing, half a JSON object, `OK|` without an id) a task may or may not exist.
//!
//! A truncated id looks like an id, so the transport has to ensure that the body is complete.

use domain::id::TaskId;

use super::SubmitReply;
use crate::{
    Garbled, code,
    json::{self, Shape},
    reply::{self, Status},
};

/// Parses the provider's reply to a submission, in either style.
pub fn read_reply(body: &[u8]) -> Result<SubmitReply, Garbled> {
    let text = reply::text(body)?;
    if text.starts_with('{') {
        return read_json(text);
    }
    if let Some(id) = text.strip_prefix("OK|") {
        return accepted(id);
    }
    code::in_text(text)
        .filter(|found| !code::is_not_ready(found.as_str()))
        .map(SubmitReply::Refused)
        .ok_or(Garbled::because("neither OK| nor a code"))
}

fn read_json(text: &str) -> Result<SubmitReply, Garbled> {
    let members = reply::members(text)?;
    let neither = "`request` is neither an id nor a code";
    match (reply::status(&members)?, members.shape("request")) {
        (Status::Ok, Some(Shape::Text(id))) => accepted(&id),
        (Status::Ok, Some(Shape::Number(id))) if id.bytes().all(|b| b.is_ascii_digit()) => {
            accepted(id)
        }
        (Status::Ok, _) => Err(Garbled::because(neither)),
        (Status::Failed, _) => match reply::code(&members, neither)? {
            code if code::is_not_ready(code.as_str()) => Err(reply::NO_CODE),
            code => Ok(SubmitReply::Refused(code)),
        },
    }
}

/// Ids are opaque, but must not be markup or an error.
fn accepted(id: &str) -> Result<SubmitReply, Garbled> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    if id.starts_with("ERROR") || !id.bytes().all(plain) {
        return Err(Garbled::because("invalid id"));
    }
    TaskId::new(id)
        .map(SubmitReply::Accepted)
        .map_err(|_| Garbled::because("the id is empty or too long"))
}

/// Writes the reply to a submission; ids are JSON strings.
pub fn write_reply(reply: &SubmitReply, json: bool) -> String {
    match reply {
        SubmitReply::Accepted(id) if json => json::success(id.as_str()),
        SubmitReply::Accepted(id) => format!("OK|{id}"),
        SubmitReply::Refused(refusal) => code::write(refusal, json),
    }
}

/// Writes the reply like CaptchaAI for `userrecaptcha`: in JSON, with a number as the id where possible.
pub fn write_reply_int_id(reply: &SubmitReply) -> String {
    match reply {
        SubmitReply::Accepted(id)
            if id.as_str().parse::<u64>().is_ok_and(|n| n.to_string() == id.as_str()) =>
        {
            format!(r#"{{"status":1,"request":{id}}}"#)
        }
        SubmitReply::Accepted(_) | SubmitReply::Refused(_) => write_reply(reply, true),
    }
}
