//! Parsing that all replies share.

use domain::retry::Code;

use crate::{Garbled, code, json::Members};

/// A JSON reply's `status`.
#[derive(Clone, Copy)]
pub(crate) enum Status {
    Ok,
    Failed,
}

/// The body as trimmed text. Answers keep their spaces: see [`text_of_answer`].
pub(crate) fn text(body: &[u8]) -> Result<&str, Garbled> {
    text_of_answer(body).map(str::trim)
}

/// The body as text without line breaks at its ends; an answer may start or end with a space.
pub(crate) fn text_of_answer(body: &[u8]) -> Result<&str, Garbled> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = str::from_utf8(body).map_err(|_| Garbled::because("not UTF-8"))?;
    let text = text.trim_matches(['\r', '\n']);
    if text.trim().is_empty() { Err(Garbled::because("empty")) } else { Ok(text) }
}

pub(crate) fn members(text: &str) -> Result<Members<'_>, Garbled> {
    Members::read(text).map_err(|_| Garbled::because("not a JSON object"))
}

/// `1` or `0`, as a number or as a string.
pub(crate) fn status(members: &Members<'_>) -> Result<Status, Garbled> {
    match members.scalar("status").as_deref() {
        Some("1") => Ok(Status::Ok),
        Some("0") => Ok(Status::Failed),
        Some(_) | None => Err(Garbled::because("`status` is neither 0 nor 1")),
    }
}

/// The code of a reply with status 0; `no_text` is the error when `request` is not a string.
pub(crate) fn code(members: &Members<'_>, no_text: &'static str) -> Result<Code, Garbled> {
    let text = members.text("request").ok_or(Garbled::because(no_text))?;
    code::in_json(&text).ok_or(NO_CODE)
}

pub(crate) const NO_CODE: Garbled = Garbled::because("status 0 without a code");
