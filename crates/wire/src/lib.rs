//! The grammar of the in.php/res.php protocol: text on the wire ↔ words of the domain, both directions, pure.
//!
//! # Layout
//! - [`form`]: every way a request's parameters can be put on the wire, merged into one
//! - [`submit`]: in.php, a challenge and its reply
//! - [`fetch`]: res.php, what is asked of it and what it replies
//! - [`pingback`]: the provider's call to us, its address and what it says
//! - [`code`]: the error codes by name, and what counts as one
//!
//! Reading and writing stand side by side: a door reads what a worker asks and writes what we reply, the upstream writes what
//! we ask and reads what the provider replies.

use domain::secret::Secret;

pub mod code;
pub mod fetch;
pub mod form;
mod json;
pub mod pingback;
mod reply;
pub mod submit;

/// How the asker wants its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyStyle {
    /// `json=1`: a JSON object instead of plain text.
    pub json: bool,
    /// `header_acao=1`: with `Access-Control-Allow-Origin: *`.
    pub header_acao: bool,
}

/// The reply is not of this protocol. Never shows what came instead: it may hold a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply is not of the protocol: {why}")]
pub struct Garbled {
    /// What is wrong with it.
    pub why: &'static str,
}

// === impl ReplyStyle ===

impl ReplyStyle {
    /// The style a request asks for.
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

/// `1`, or `true` as some write it.
pub(crate) fn is_set(value: Option<&str>) -> bool {
    matches!(value, Some("1" | "true"))
}

/// The key the asker shows.
pub(crate) fn worker_key(form: &form::Form) -> Option<Secret> {
    form.get("key").filter(|key| !key.is_empty()).map(Secret::new)
}
