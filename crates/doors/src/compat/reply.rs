//! Replies of the compat door: plain or JSON, always 200, with `Access-Control-Allow-Origin` on request.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use domain::retry::Code;
use wire::{ReplyStyle, form::Form};

/// The reply style that the client asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style(ReplyStyle);

impl Style {
    pub(super) fn from_form(form: &Form) -> Self {
        Self(ReplyStyle::of(form))
    }

    /// The style given by the query alone.
    pub(super) fn from_query(query: Option<&str>) -> Self {
        Form::read(query, None, &[]).map(|form| Self::from_form(&form)).unwrap_or_default()
    }

    pub(super) fn json(self) -> bool {
        self.0.json
    }

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

    pub(super) fn refuse(self, code: &Code) -> Response {
        self.response(wire::fetch::write_refusal(code, self.json()))
    }
}
