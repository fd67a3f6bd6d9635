//! Replies of the compat door: plain or JSON, always 200, with `Access-Control-Allow-Origin` on request.

use std::time::Duration;

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use domain::retry::Code;
use wire::{ReplyStyle, form::Form};

use crate::error::seconds;

/// The style given by the query alone.
pub(super) fn style_of_query(query: Option<&str>) -> ReplyStyle {
    Form::read(query, None, &[]).map(|form| ReplyStyle::of(&form)).unwrap_or_default()
}

pub(super) fn respond(style: ReplyStyle, body: String) -> Response {
    let json = body.starts_with('{');
    let kind = if json { "application/json" } else { "text/plain; charset=utf-8" };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if style.header_acao {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    response
}

/// Says when the key of a failed claim opens it again. Client libraries ignore the header; a program that knows it can wait.
pub(super) fn with_retry_after(mut response: Response, wait: Option<Duration>) -> Response {
    if let Some(wait) = wait {
        response.headers_mut().insert(header::RETRY_AFTER, seconds(wait).into());
    }
    response
}

pub(super) fn refuse(style: ReplyStyle, code: &Code) -> Response {
    respond(style, wire::fetch::write_refusal(code, style.json))
}
