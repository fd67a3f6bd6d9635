//! How a body is read: whole, bounded, in time, and refused by its announced length before a byte of it is taken.

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, header},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::{Doors, error::Refusal};

/// Reads a body of at most `most` bytes.
pub(crate) async fn read(
    doors: &Doors,
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<Bytes, Refusal> {
    if announced(headers).is_some_and(|length| length > most as u64) {
        return Err(Refusal::TooLarge(most));
    }
    let whole = Limited::new(body, most).collect();
    match timeout(doors.limits().body_timeout, whole).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::TooLarge(most)),
        Ok(Err(_)) => Err(Refusal::Broken),
        Err(_) => Err(Refusal::Slow),
    }
}

/// What `Content-Length` says; hyper has checked its form.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
