//! in.php's reply. Reading is strict, because money hangs on it: only a well-formed acceptance or refusal counts, and
//! everything else (HTML, nothing, half a JSON object, `OK|` without an id) leaves open whether a task exists.
//!
//! An id that lost its end looks like an id: that a body is complete is for the transport to know.

use domain::id::TaskId;

use super::Reply;
use crate::{
    Garbled, code,
    json::{self, Members, Shape},
    reply::{self, Status},
};

/// Reads the provider's reply to a submission, in either style.
pub fn read_reply(body: &[u8]) -> Result<Reply, Garbled> {
    let text = reply::text(body)?;
    if text.starts_with('{') {
        return read_json(text);
    }
    if let Some(id) = text.strip_prefix("OK|") {
        return accepted(id);
    }
    code::in_text(text)
        .filter(|found| !code::is_not_ready(found.as_str()))
        .map(Reply::Refused)
        .ok_or(Garbled::because("neither OK| nor a code"))
}

fn read_json(text: &str) -> Result<Reply, Garbled> {
    let members = Members::read(text).map_err(|_| Garbled::because("not a JSON object"))?;
    match (reply::status(&members)?, members.shape("request")) {
        (Status::Ok, Some(Shape::Text(id))) => accepted(&id),
        (Status::Ok, Some(Shape::Number(id))) if id.bytes().all(|b| b.is_ascii_digit()) => {
            accepted(id)
        }
        (Status::Failed, Some(Shape::Text(told))) => code::in_json(&told)
            .filter(|found| !code::is_not_ready(found.as_str()))
            .map(Reply::Refused)
            .ok_or(Garbled::because("status 0 without a code")),
        (
            Status::Ok | Status::Failed,
            Some(Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::Nested(_)) | None,
        ) => Err(Garbled::because("`request` is neither an id nor a code")),
    }
}

/// Ids are opaque, but words: no markup, no error where an id should be.
fn accepted(id: &str) -> Result<Reply, Garbled> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    if id.starts_with("ERROR") || !id.bytes().all(plain) {
        return Err(Garbled::because("the id is not one"));
    }
    TaskId::new(id)
        .map(Reply::Accepted)
        .map_err(|_| Garbled::because("the id is empty or too long"))
}

/// Writes the reply to a submission; ids are JSON strings.
pub fn write_reply(reply: &Reply, json: bool) -> String {
    match reply {
        Reply::Accepted(id) if json => {
            format!(r#"{{"status":1,"request":{}}}"#, json::quote(id.as_str()))
        }
        Reply::Accepted(id) => format!("OK|{id}"),
        Reply::Refused(refusal) => code::write(refusal, json),
    }
}

/// Writes the reply as CaptchaAI does for `userrecaptcha`: JSON, the id a number where it can be one.
pub fn write_reply_int_id(reply: &Reply) -> String {
    match reply {
        Reply::Accepted(id)
            if id.as_str().parse::<u64>().is_ok_and(|n| n.to_string() == id.as_str()) =>
        {
            format!(r#"{{"status":1,"request":{id}}}"#)
        }
        Reply::Accepted(_) | Reply::Refused(_) => write_reply(reply, true),
    }
}
