//! The reply to `get` with several ids: parts joined by `|` in the order of the ids, each an answer or a code.
//!
//! An answer that contains `|` cannot be delimited. Then the number of parts is wrong, the reply counts as garbled, and each
//! id has to be polled separately. Plain text has no `OK|` in front. A single code instead of the list is about the request:
//! see [`Many`].

use domain::{retry::Code, secret::Secret, token::Answer};

use super::{FetchReply, Many};
use crate::{
    Garbled, code, json,
    reply::{self, Status},
};

/// Codes that, as the only reply to several ids, mean that the provider looked for one `id` or took the list for one.
const UNSUPPORTED: [&str; 7] = [
    code::ERROR_EMPTY_ACTION,
    code::ERROR_WRONG_ID_FORMAT,
    code::ERROR_WRONG_CAPTCHA_ID,
    code::ERROR_NO_SUCH_CAPCHA_ID,
    code::ERROR_CAPTCHA_ID,
    code::ERROR_BAD_PARAMETERS,
    code::ERROR_UPLOAD,
];

/// Codes about the account or the service, whatever the request.
const ABOUT_US: [&str; 9] = [
    code::ERROR_WRONG_USER_KEY,
    code::ERROR_KEY_DOES_NOT_EXIST,
    code::ERROR_ZERO_BALANCE,
    code::ERROR_SERVER_ERROR,
    code::ERROR_INTERNAL_SERVER_ERROR,
    code::ERROR_TOO_MUCH_REQUESTS,
    code::IP_BANNED,
    code::ERROR_IP_BANNED,
    code::ERROR_IP_NOT_ALLOWED,
];

/// Reads the reply to `get` with `n` ids.
pub fn read_many(body: &[u8], n: usize) -> Result<Many, Garbled> {
    let text = reply::text(body)?;
    if text.starts_with('{') {
        return read_json(text, n);
    }
    if let Some(found) = code::in_text(text) {
        return whole(found, n);
    }
    if text.starts_with('<') {
        return Ok(Many::Unsupported);
    }
    if text.contains(char::is_control) {
        return Err(Garbled::because("not a list of answers"));
    }
    match text.strip_prefix("OK|") {
        Some(one) if n == 1 => Ok(Many::Each(vec![part(one)])),
        None if n == 1 => Err(Garbled::because("neither OK| nor a code")),
        // `OK` never counts as a part: a provider that only reads the first id replies in the same way.
        Some(rest) => read_parts(rest, n),
        None => read_parts(text, n),
    }
}

fn read_json(text: &str, n: usize) -> Result<Many, Garbled> {
    let members = reply::members(text)?;
    let status = reply::status(&members)?;
    let Some(text) = members.text("request") else {
        return Err(Garbled::because("`request` is not a list of answers"));
    };
    match status {
        Status::Ok if n == 1 && !text.is_empty() => Ok(Many::Each(vec![part(&text)])),
        Status::Ok => read_parts(&text, n),
        Status::Failed => match code::in_json(&text) {
            Some(found) => whole(found, n),
            None => read_codes(&text, n),
        },
    }
}

/// A single code instead of the list.
fn whole(found: Code, n: usize) -> Result<Many, Garbled> {
    let is_ban = found.as_str().starts_with("ERROR: ");
    if is_ban || ABOUT_US.contains(&found.as_str()) {
        return Ok(Many::Refused(found));
    }
    if n == 1 && !UNSUPPORTED[..2].contains(&found.as_str()) {
        return Ok(Many::Each(vec![found.into()]));
    }
    if UNSUPPORTED.contains(&found.as_str()) {
        return Ok(Many::Unsupported);
    }
    Err(Garbled::because("one code for several ids"))
}

/// A list with `"status":0` cannot contain answers.
fn read_codes(text: &str, n: usize) -> Result<Many, Garbled> {
    match read_parts(text, n)? {
        Many::Each(replies) if replies.iter().all(|r| !matches!(r, FetchReply::Answer { .. })) => {
            Ok(Many::Each(replies))
        }
        Many::Each(_) | Many::Refused(_) | Many::Unsupported => Err(reply::NO_CODE),
    }
}

fn read_parts(text: &str, n: usize) -> Result<Many, Garbled> {
    let parts: Vec<&str> = text.split('|').collect();
    if parts.len() != n {
        return Err(Garbled::because("the parts are not as many as the ids"));
    }
    let replies: Option<Vec<_>> = parts.into_iter().map(one_of_many).collect();
    replies.map(Many::Each).ok_or(Garbled::because("a part may be a code that was cut off"))
}

fn part(text: &str) -> FetchReply {
    if let Some(found) = code::in_text(text) {
        return found.into();
    }
    let answer = Answer { text: Secret::new(text), is_json: json::is_nested(text), extras: None };
    FetchReply::Answer { answer, price: None }
}

/// An answer or a code without a status that says which. `None` for text that is not a code but too similar to one to be
/// delivered as an answer.
pub(crate) fn one_of_many(text: &str) -> Option<FetchReply> {
    let begins = ["ERROR", "CAPCHA_", "CAPTCHA_"].iter().any(|begin| text.starts_with(begin));
    let is_doubtful = text.is_empty() || (begins && code::in_text(text).is_none());
    (!is_doubtful).then(|| part(text))
}

/// Writes the reply to `get` with several ids. It cannot carry extras and prices.
pub fn write_many(replies: &[FetchReply], json: bool) -> String {
    let parts: Vec<&str> = replies
        .iter()
        .map(|reply| match reply {
            FetchReply::NotReady => code::CAPCHA_NOT_READY,
            FetchReply::Answer { answer, .. } => answer.text.expose(),
            FetchReply::Refused(refusal) => refusal.as_str(),
        })
        .collect();
    let joined = parts.join("|");
    if json { json::success(&joined) } else { joined }
}
