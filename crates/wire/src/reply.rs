//! Parsing that all replies share.

use crate::{
    Garbled,
    json::{Members, Shape},
};

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

/// `1` or `0`, as a number or as a string.
pub(crate) fn status(members: &Members<'_>) -> Result<Status, Garbled> {
    let said = match members.shape("status") {
        Some(Shape::Number(number)) => number.to_owned(),
        Some(Shape::Text(text)) => text,
        Some(Shape::Null | Shape::Bool(_) | Shape::Nested(_)) | None => String::new(),
    };
    match said.as_str() {
        "1" => Ok(Status::Ok),
        "0" => Ok(Status::Failed),
        _ => Err(Garbled::because("`status` is neither 0 nor 1")),
    }
}
