//! Where the provider calls when a task is over. No key is wanted: the address itself proves that we made it. Whatever
//! comes, the answer is the same, so that nobody learns from it which addresses are real.

use std::net::{IpAddr, Ipv4Addr};

use axum::{
    extract::{Path, Request, State},
    http::Method,
};

use crate::{Doors, body, error::Refusal, peer::Peer};

const BODY_BYTES: usize = 64 * 1024;

/// `GET` and `POST /-/pingback/{name}`.
pub(crate) async fn take(
    State(doors): State<Doors>,
    Path(name): Path<String>,
    request: Request,
) -> Result<&'static str, Refusal> {
    let Some(secret) = &doors.config().pingback else { return Err(Refusal::NotFound) };
    let (parts, body) = request.into_parts();
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let address = parts.extensions.get::<Peer>().map_or(nowhere, Peer::address);
    doors.0.pingbacks.count(address, doors.now()).map_err(Refusal::TooManyPingbacks)?;
    let body = body::read(&doors, &parts.headers, body, BODY_BYTES).await?;
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let told = if parts.method == Method::POST && !body.is_empty() { &body } else { query };
    let named = wire::pingback::read(&name, secret);
    // What it says about the task is not taken from it: anybody may have sent it.
    if let (Some(attempt), Some((task, _))) = (named, wire::pingback::read_body(told)) {
        doors.engine().pingback(attempt, task).await;
    }
    Ok("OK")
}
