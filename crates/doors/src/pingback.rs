//! Receives the provider's calls when a task is over. They need no key, because the address itself is signed. The response is
//! always the same, so that a caller cannot find out which addresses exist.

use axum::{
    extract::{Path, Request, State},
    http::Method,
};

use crate::{Doors, body, error::Refusal, peer::Peer};

const BODY_BYTES: usize = 64 * 1024;

/// `GET` and `POST /-/pingback/{name}`.
pub(crate) async fn receive(
    State(doors): State<Doors>,
    Path(name): Path<String>,
    request: Request,
) -> Result<&'static str, Refusal> {
    let Some(secret) = &doors.config().pingback else { return Err(Refusal::NotFound) };
    let (parts, body) = request.into_parts();
    let address = Peer::address_of(parts.extensions.get());
    doors.0.pingbacks.count(address, doors.now()).map_err(Refusal::TooManyPingbacks)?;
    let body = body::read(&doors, &parts.headers, body, BODY_BYTES).await?;
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let payload = if parts.method == Method::POST && !body.is_empty() { &body } else { query };
    let named = wire::pingback::read(&name, secret);
    // A pingback only triggers a poll: anybody who knows the address could have sent it.
    if let (Some(attempt), Some((task, _))) = (named, wire::pingback::read_body(payload)) {
        doors.engine().pingback(attempt, task).await;
    }
    Ok("OK")
}
