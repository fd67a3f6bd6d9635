//! The reply to `get` with several ids: parts joined by `|` in the order of the ids, each an answer or a code.
//!
//! The form has no way to say where an answer that contains `|` ends; the count of the parts tells that something is
//! wrong, and then the reply is garbled and each id has to be asked for by itself. Plain text has no `OK|` in front.

use domain::{secret::Secret, token::Answer};

use super::Reply;
use crate::{
    Garbled, code,
    json::{self, Members, Shape},
    reply::{self, Status},
};

/// Reads the reply to `get` with `n` ids. A code for the whole question counts for each id.
pub fn read_many(body: &[u8], n: usize) -> Result<Vec<Reply>, Garbled> {
    let text = reply::text(body)?;
    if text.starts_with('{') {
        return read_json(text, n);
    }
    if let Some(found) = code::in_text(text) {
        return Ok(vec![part(found.as_str()); n]);
    }
    if text.starts_with('<') || text.contains(char::is_control) {
        return Err(Garbled::because("not a list of answers"));
    }
    match text.strip_prefix("OK|") {
        Some(one) if n == 1 => Ok(vec![part(one)]),
        None if n == 1 => Err(Garbled::because("neither OK| nor a code")),
        Some(rest) => read_parts(text, n).or_else(|_| read_parts(rest, n)),
        None => read_parts(text, n),
    }
}

fn read_json(text: &str, n: usize) -> Result<Vec<Reply>, Garbled> {
    let members = Members::read(text).map_err(|_| Garbled::because("not a JSON object"))?;
    match (reply::status(&members)?, members.shape("request")) {
        (Status::Ok, Some(Shape::Text(one))) if n == 1 && !one.is_empty() => Ok(vec![part(&one)]),
        (Status::Ok, Some(Shape::Text(parts))) => read_parts(&parts, n),
        (Status::Failed, Some(Shape::Text(told))) => {
            let found = code::in_json(&told).ok_or(Garbled::because("status 0 without a code"))?;
            let each = match part(found.as_str()) {
                Reply::Answer { .. } => Reply::Refused(found),
                coded @ (Reply::NotReady | Reply::Refused(_)) => coded,
            };
            Ok(vec![each; n])
        }
        (
            Status::Ok | Status::Failed,
            Some(Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::Nested(_)) | None,
        ) => Err(Garbled::because("`request` is not a list of answers")),
    }
}

fn read_parts(text: &str, n: usize) -> Result<Vec<Reply>, Garbled> {
    let parts: Vec<&str> = text.split('|').collect();
    if parts.len() != n || parts.iter().any(|part| part.is_empty()) {
        return Err(Garbled::because("the parts are not as many as the ids"));
    }
    Ok(parts.into_iter().map(part).collect())
}

fn part(text: &str) -> Reply {
    match code::in_text(text) {
        Some(found) if code::is_not_ready(found.as_str()) => Reply::NotReady,
        Some(found) => Reply::Refused(found),
        None => {
            let answer =
                Answer { text: Secret::new(text), is_json: json::is_nested(text), extras: None };
            Reply::Answer { answer, price: None }
        }
    }
}

/// Writes the reply to `get` with several ids. Extras and prices have no place in it.
pub fn write_many(replies: &[Reply], json: bool) -> String {
    let parts: Vec<&str> = replies
        .iter()
        .map(|reply| match reply {
            Reply::NotReady => code::CAPCHA_NOT_READY,
            Reply::Answer { answer, .. } => answer.text.expose(),
            Reply::Refused(refusal) => refusal.as_str(),
        })
        .collect();
    let joined = parts.join("|");
    if json { format!(r#"{{"status":1,"request":{}}}"#, json::quote(&joined)) } else { joined }
}
