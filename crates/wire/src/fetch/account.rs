//! What res.php tells about the account, and its word about a report.

use domain::{money::Money, ports::Threads};

use super::Told;
use crate::{
    Garbled, code,
    json::{self, Members, Shape},
    reply::{self, Status},
};

/// A reply that is one text: `request` in JSON, all of it in plain.
fn read_text(body: &[u8]) -> Result<Told<String>, Garbled> {
    let text = reply::text(body)?;
    if !text.starts_with('{') {
        return Ok(code::in_text(text).map_or_else(|| Told::Is(text.to_owned()), Told::Refused));
    }
    let members = Members::read(text).map_err(|_| Garbled::because("not a JSON object"))?;
    match (reply::status(&members)?, members.shape("request")) {
        (Status::Ok, Some(Shape::Text(told))) => Ok(Told::Is(told)),
        (Status::Ok, Some(Shape::Number(told))) => Ok(Told::Is(told.to_owned())),
        (Status::Failed, Some(Shape::Text(told))) => code::in_json(&told)
            .map(Told::Refused)
            .ok_or(Garbled::because("status 0 without a code")),
        (
            Status::Ok | Status::Failed,
            Some(Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::Nested(_)) | None,
        ) => Err(Garbled::because("`request` is not a text")),
    }
}

fn write_text(text: &str, json: bool) -> String {
    if json {
        format!(r#"{{"status":1,"request":{}}}"#, json::quote(text))
    } else {
        text.to_owned()
    }
}

/// Reads the reply to `getbalance`.
pub fn read_balance(body: &[u8]) -> Result<Told<Money>, Garbled> {
    match read_text(body)? {
        Told::Is(text) => {
            Money::parse(&text).map(Told::Is).ok_or(Garbled::because("the balance is no number"))
        }
        Told::Refused(refusal) => Ok(Told::Refused(refusal)),
    }
}

/// Writes the reply to `getbalance`.
pub fn write_balance(balance: Money, json: bool) -> String {
    write_text(&balance.to_string(), json)
}

/// Reads the reply to `threadsinfo`: an object of its own, numbers as numbers or as strings.
pub fn read_threads(body: &[u8]) -> Result<Told<Threads>, Garbled> {
    let text = reply::text(body)?;
    let members = Members::read(text).ok();
    let count = |name| match members.as_ref()?.shape(name)? {
        Shape::Number(number) => number.parse().ok(),
        Shape::Text(text) => text.parse().ok(),
        Shape::Null | Shape::Bool(_) | Shape::Nested(_) => None,
    };
    if let (Some(total), Some(working)) = (count("threads"), count("working_threads")) {
        return Ok(Told::Is(Threads { total, working }));
    }
    match read_text(body)? {
        Told::Refused(refusal) => Ok(Told::Refused(refusal)),
        Told::Is(_) => Err(Garbled::because("neither threads nor a code")),
    }
}

/// Writes the reply to `threadsinfo`; it is JSON in either style.
pub fn write_threads(threads: Threads) -> String {
    format!(r#"{{"threads":"{}","working_threads":"{}"}}"#, threads.total, threads.working)
}

/// Reads the reply to a report.
pub fn read_report(body: &[u8]) -> Result<Told<()>, Garbled> {
    match read_text(body)? {
        Told::Is(text) if text == code::OK_REPORT_RECORDED => Ok(Told::Is(())),
        Told::Is(_) => Err(Garbled::because("neither taken nor refused")),
        Told::Refused(refusal) => Ok(Told::Refused(refusal)),
    }
}

/// Writes the reply to a report that was taken.
pub fn write_report(json: bool) -> String {
    write_text(code::OK_REPORT_RECORDED, json)
}
