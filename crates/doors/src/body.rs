//! Reads a whole body with a limit on size and time. A body whose announced length is too large is refused unread.

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, header},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::{
    Doors,
    error::Refusal,
    in_flight::{HeldBody, TooManyBytes},
    limits::Limits,
};

/// Reads a body of at most `max` bytes.
pub(crate) async fn read(
    doors: &Doors,
    headers: &HeaderMap,
    body: Body,
    max: usize,
) -> Result<Bytes, Refusal> {
    check_announced(headers, max)?;
    let whole = Limited::new(body, max).collect();
    match timeout(doors.limits().body_timeout, whole).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::TooLarge(max)),
        Ok(Err(_)) => Err(Refusal::Broken),
        Err(_) => Err(Refusal::Slow),
    }
}

/// Reads a body of a worker, whose bytes count until `held` is dropped.
pub(crate) async fn read_held(
    held: &mut HeldBody,
    limits: &Limits,
    headers: &HeaderMap,
    body: Body,
    max: usize,
) -> Result<Vec<u8>, Refusal> {
    check_announced(headers, max)?;
    let whole = collect_held(held, limits, body, max);
    timeout(limits.body_timeout, whole).await.unwrap_or(Err(Refusal::Slow))
}

async fn collect_held(
    held: &mut HeldBody,
    limits: &Limits,
    mut body: Body,
    max: usize,
) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|_| Refusal::Broken)?.into_data().unwrap_or_default();
        if bytes.len() + data.len() > max {
            return Err(Refusal::TooLarge(max));
        }
        bytes.extend_from_slice(&data);
        let is_held = held.hold(bytes.capacity());
        is_held.map_err(|TooManyBytes| Refusal::TooManyBytes(limits.worker_bytes))?;
    }
    Ok(bytes)
}

/// Refuses a body whose announced length is too large.
pub(crate) fn check_announced(headers: &HeaderMap, max: usize) -> Result<(), Refusal> {
    let is_too_large = announced(headers).is_some_and(|length| length > max as u64);
    if is_too_large { Err(Refusal::TooLarge(max)) } else { Ok(()) }
}

/// `Content-Length`; hyper has validated it.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
