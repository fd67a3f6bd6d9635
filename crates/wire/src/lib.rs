//! Parses and writes the in.php/res.php protocol, both directions, without I/O.
//!
//! # Layout
//! - [`form`]: a request's parameters, whichever encoding they came in
//! - [`submit`]: in.php, challenges and replies
//! - [`fetch`]: res.php, actions and replies
//! - [`pingback`]: the provider's calls to us, their address and body
//! - [`code`]: the error codes
//!
//! A door reads requests of workers and writes our replies; the upstream writes our requests and reads the provider's replies.

use domain::secret::Secret;

pub mod code;
pub mod fetch;
pub mod form;
mod json;
pub mod pingback;
mod reply;
pub mod submit;

/// The reply style a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyStyle {
    /// `json=1`: a JSON object instead of plain text.
    pub json: bool,
    /// `header_acao=1`: with `Access-Control-Allow-Origin: *`.
    pub header_acao: bool,
}

/// The reply does not follow the protocol. The error never quotes it, because it may contain a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply does not follow the protocol: {why}")]
pub struct Garbled {
    pub why: &'static str,
}

// === impl ReplyStyle ===

impl ReplyStyle {
    pub fn of(form: &form::Form) -> Self {
        Self { json: is_set(form.get("json")), header_acao: is_set(form.get("header_acao")) }
    }
}

// === impl Garbled ===

impl Garbled {
    pub(crate) const fn because(why: &'static str) -> Self {
        Self { why }
    }
}

/// `1`, or `true` as some clients write it.
pub(crate) fn is_set(value: Option<&str>) -> bool {
    matches!(value, Some("1" | "true"))
}

pub(crate) fn worker_key(form: &form::Form) -> Option<Secret> {
    form.get("key").filter(|key| !key.is_empty()).map(Secret::new)
}
