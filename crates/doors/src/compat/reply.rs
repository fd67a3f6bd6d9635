//! How the compat door answers: plain or JSON, always 200, with `Access-Control-Allow-Origin` when asked for.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use domain::retry::Code;
use wire::{ReplyStyle, form::Form};

/// How the worker wants its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style(ReplyStyle);

impl Style {
    pub(super) fn of(form: &Form) -> Self {
        Self(ReplyStyle::of(form))
    }

    /// As far as the query alone tells.
    pub(super) fn of_query(query: Option<&str>) -> Self {
        Form::read(query, None, &[]).map(|form| Self::of(&form)).unwrap_or_default()
    }

    pub(super) fn json(self) -> bool {
        self.0.json
    }

    /// A finished body as a response.
    pub(super) fn response(self, body: String) -> Response {
        let json = body.starts_with('{');
        let kind = if json { "application/json" } else { "text/plain; charset=utf-8" };
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.0.header_acao {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        response
    }

    /// A code as a response.
    pub(super) fn refuse(self, code: &Code) -> Response {
        self.response(wire::fetch::write_refusal(code, self.json()))
    }
}
