//! The reply to `get` and `get2`. An unreadable reply is an error, and the caller polls again: the task is known, so nothing is
//! lost.
//!
//! The answer follows the first `|`, even if it contains `|` itself or the letters `ERROR`. With `get2` the price follows the
//! last `|`, so an answer that contains `|` must be written with its price (see [`write_reply`]).

use domain::{money::Money, secret::Secret, token::Answer};

use super::FetchReply;
use crate::{
    Garbled, code,
    json::{self, Members, Shape},
    reply::{self, Status},
};

/// Members that are not extras.
const OWN: [&str; 3] = ["status", "request", "price"];

/// Parses the reply to `get`, or to `get2` if `priced`, in either style.
pub fn read_reply(body: &[u8], priced: bool) -> Result<FetchReply, Garbled> {
    let text = reply::text_of_answer(body)?;
    if text.trim_start().starts_with('{') {
        return read_json(text.trim());
    }
    if let Some(rest) = text.strip_prefix("OK|") {
        return read_plain(rest, priced);
    }
    code::in_text(text.trim())
        .map(FetchReply::from)
        .ok_or(Garbled::because("neither OK| nor a code"))
}

fn read_plain(rest: &str, priced: bool) -> Result<FetchReply, Garbled> {
    let priced_at = if priced { rest.rsplit_once('|') } else { None };
    let found = priced_at.and_then(|(text, price)| Some((text, Some(read_price(price)?))));
    let (text, price) = found.unwrap_or((rest, None));
    if text.is_empty() {
        return Err(Garbled::because("OK| without an answer"));
    }
    let is_json = json::is_nested(text);
    Ok(FetchReply::Answer {
        answer: Answer { text: Secret::new(text), is_json, extras: None },
        price,
    })
}

fn read_json(text: &str) -> Result<FetchReply, Garbled> {
    let members = reply::members(text)?;
    if members.get("status").is_none() && is_bare_geetest(&members) {
        let answer = Answer { text: Secret::new(text), is_json: true, extras: None };
        return Ok(FetchReply::Answer { answer, price: None });
    }
    match reply::status(&members)? {
        Status::Ok => read_answer(&members),
        Status::Failed => reply::code(&members, reply::NO_CODE.why).map(FetchReply::from),
    }
}

/// Without `json=1`, GeeTest's answer is a bare object.
fn is_bare_geetest(members: &Members<'_>) -> bool {
    let has = |name| members.get(name).is_some();
    (has("challenge") && has("validate"))
        || (has("geetest_challenge") && has("geetest_validate"))
        || (has("captcha_id") && has("lot_number"))
}

/// The answer is `request`, or CaptchaAI's `result`, which also stays among the extras for its clients.
fn read_answer(members: &Members<'_>) -> Result<FetchReply, Garbled> {
    let (text, is_json) = match members.shape("request").or_else(|| members.shape("result")) {
        Some(Shape::Text(text)) => (text, false),
        Some(Shape::Number(number)) => (number.to_owned(), false),
        Some(Shape::Nested(text)) => (text.to_owned(), true),
        Some(Shape::Null | Shape::Bool(_)) | None => (String::new(), false),
    };
    if text.is_empty() {
        return Err(Garbled::because("status 1 without an answer"));
    }
    let price = members.scalar("price").and_then(|price| read_price(&price));
    let extras = members_but(&OWN, members);
    let extras = (!extras.is_empty()).then(|| Secret::new(format!("{{{}}}", extras.join(","))));
    Ok(FetchReply::Answer { answer: Answer { text: Secret::new(text), is_json, extras }, price })
}

fn read_price(text: &str) -> Option<Money> {
    Money::parse(text).filter(|price| *price >= Money::ZERO)
}

/// Writes the reply to `get`, or to `get2` if `priced`. An unknown price is left out; then the end of a plain-text answer that
/// contains `|` looks like the price.
pub fn write_reply(reply: &FetchReply, json: bool, priced: bool) -> String {
    let (answer, price) = match reply {
        FetchReply::NotReady => return code::write(&code::CAPCHA_NOT_READY.into(), json),
        FetchReply::Refused(refusal) => return code::write(refusal, json),
        FetchReply::Answer { answer, price } => (answer, price.filter(|_| priced)),
    };
    if json {
        let price = price.map(|price| format!(r#","price":"{price}""#)).unwrap_or_default();
        return format!(
            r#"{{"status":1,"request":{}{price}{}}}"#,
            value(answer),
            extras(answer, &OWN)
        );
    }
    let price = price.map(|price| format!("|{price}")).unwrap_or_default();
    format!("OK|{}{price}", answer.text.expose())
}

/// Writes an answer like CaptchaAI for challenge pages and enterprise: `result` instead of `request`, in JSON.
pub fn write_result(answer: &Answer) -> String {
    let extras = extras(answer, &["status", "request", "price", "result"]);
    format!(r#"{{"status":1,"result":{}{extras}}}"#, value(answer))
}

/// The answer as a JSON value; a string stays a string, whatever it looks like.
fn value(answer: &Answer) -> String {
    let text = answer.text.expose();
    if answer.is_json && json::is_nested(text) { text.to_owned() } else { json::quote(text) }
}

/// The extras as further members, with a leading comma.
fn extras(answer: &Answer, own: &[&str]) -> String {
    let Some(extras) = &answer.extras else { return String::new() };
    let Ok(members) = Members::read(extras.expose()) else { return String::new() };
    let kept = members_but(own, &members);
    if kept.is_empty() { String::new() } else { format!(",{}", kept.join(",")) }
}

fn members_but(own: &[&str], members: &Members<'_>) -> Vec<String> {
    let kept = members.iter().filter(|(name, _)| !own.contains(name));
    kept.map(|(name, value)| format!("{}:{}", json::quote(name), value.get())).collect()
}
