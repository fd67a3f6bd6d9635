//! Replies of res.php about the account and to reports.

use domain::{money::Money, ports::Threads};

use super::AccountReply;
use crate::{
    Garbled, code,
    json::{self, Members},
    reply::{self, Status},
};

/// A reply with a single value: `request` in JSON, the whole text otherwise.
fn read_text(body: &[u8]) -> Result<AccountReply<String>, Garbled> {
    let text = reply::text(body)?;
    if !text.starts_with('{') {
        return Ok(code::in_text(text)
            .map_or_else(|| AccountReply::Value(text.to_owned()), AccountReply::Refused));
    }
    let members = reply::members(text)?;
    let no_text = "`request` is not a text";
    match reply::status(&members)? {
        Status::Ok => {
            let text = members.scalar("request").ok_or(Garbled::because(no_text))?;
            Ok(AccountReply::Value(text))
        }
        Status::Failed => reply::code(&members, no_text).map(AccountReply::Refused),
    }
}

fn write_text(text: &str, json: bool) -> String {
    if json { json::success(text) } else { text.to_owned() }
}

/// Reads the reply to `getbalance`.
pub fn read_balance(body: &[u8]) -> Result<AccountReply<Money>, Garbled> {
    match read_text(body)? {
        AccountReply::Value(text) => Money::parse(&text)
            .map(AccountReply::Value)
            .ok_or(Garbled::because("the balance is no number")),
        AccountReply::Refused(refusal) => Ok(AccountReply::Refused(refusal)),
    }
}

/// Writes the reply to `getbalance`.
pub fn write_balance(balance: Money, json: bool) -> String {
    write_text(&balance.to_string(), json)
}

/// Reads the reply to `threadsinfo`: an object with numbers, or with numbers in strings.
pub fn read_threads(body: &[u8]) -> Result<AccountReply<Threads>, Garbled> {
    let text = reply::text(body)?;
    let members = Members::read(text).ok();
    let count = |name| members.as_ref()?.scalar(name)?.parse().ok();
    if let (Some(total), Some(working)) = (count("threads"), count("working_threads")) {
        return Ok(AccountReply::Value(Threads { total, working }));
    }
    match read_text(body)? {
        AccountReply::Refused(refusal) => Ok(AccountReply::Refused(refusal)),
        AccountReply::Value(_) => Err(Garbled::because("neither threads nor a code")),
    }
}

/// Writes the reply to `threadsinfo`; it is JSON in either style.
pub fn write_threads(threads: Threads) -> String {
    format!(r#"{{"threads":"{}","working_threads":"{}"}}"#, threads.total, threads.working)
}

/// Reads the reply to a report.
pub fn read_report(body: &[u8]) -> Result<AccountReply<()>, Garbled> {
    match read_text(body)? {
        AccountReply::Value(text) if text == code::OK_REPORT_RECORDED => {
            Ok(AccountReply::Value(()))
        }
        AccountReply::Value(_) => Err(Garbled::because("neither taken nor refused")),
        AccountReply::Refused(refusal) => Ok(AccountReply::Refused(refusal)),
    }
}

/// Writes the reply to an accepted report.
pub fn write_report(json: bool) -> String {
    write_text(code::OK_REPORT_RECORDED, json)
}
