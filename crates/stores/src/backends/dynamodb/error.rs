//! The errors of requests, and which of them are retried.

use std::{error::Error, iter};

use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata, SdkError},
    types::error::TransactionCanceledException,
};
use domain::ports::{BoxError, StoreError};

use crate::optimistic;

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct RequestError {
    pub(super) kind: RequestErrorKind,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestErrorKind {
    /// Throttled, or in conflict with another transaction: the request was not executed.
    Throttled,
    /// Whether the request was executed is unknown.
    Unknown,
    NoTable,
    /// The request is refused; a retry does not help.
    Refused,
}

// === retries ===

fn cancellation_codes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e str> {
    let cancelled: Option<&TransactionCanceledException> = cause(error);
    let reasons =
        cancelled.into_iter().flat_map(TransactionCanceledException::cancellation_reasons);
    reasons.filter_map(|reason| reason.code())
}

/// Whether a condition of a transaction failed.
pub(super) fn is_condition_failed(error: &(dyn Error + 'static)) -> bool {
    cancellation_codes(error).any(|code| code == "ConditionalCheckFailed")
}

fn is_throttled<E: ProvideErrorMetadata + Error + 'static>(error: &SdkError<E>) -> bool {
    let codes = [
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    ];
    let cancelled = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
    error.code().is_some_and(|code| codes.contains(&code))
        || cancellation_codes(error).any(|code| cancelled.contains(&code))
            && !is_condition_failed(error)
}

/// Whether the same request may succeed in a moment.
pub(super) fn may_retry<E: ProvideErrorMetadata + Error + 'static>(error: &SdkError<E>) -> bool {
    match error {
        SdkError::TimeoutError(_) | SdkError::ResponseError(_) => true,
        SdkError::DispatchFailure(why) => why.is_io() || why.is_timeout() || why.is_other(),
        SdkError::ServiceError(refused) => {
            is_throttled(error) || refused.raw().status().as_u16() >= 500
        }
        SdkError::ConstructionFailure(_) | _ => false,
    }
}

// === impl RequestError ===

impl RequestError {
    pub(super) fn new<E: ProvideErrorMetadata + Error + 'static>(
        error: &SdkError<E>,
        table: &str,
    ) -> Self {
        let kind = match error.code() {
            Some("ResourceNotFoundException") => RequestErrorKind::NoTable,
            _ if is_throttled(error) => RequestErrorKind::Throttled,
            _ if may_retry(error) => RequestErrorKind::Unknown,
            _ => RequestErrorKind::Refused,
        };
        let message = match (kind, error.code(), error.message()) {
            (RequestErrorKind::NoTable, ..) => {
                format!("there is no table {table}; run `solvegate store migrate` to create it")
            }
            (_, Some(code), Some(message)) => format!("{code}: {message}"),
            (_, Some(code), None) => code.to_owned(),
            (_, None, _) => causes(error),
        };
        Self { kind, message }
    }

    pub(super) fn refused(message: &str) -> Self {
        Self { kind: RequestErrorKind::Refused, message: message.to_owned() }
    }
}

impl From<RequestError> for StoreError {
    fn from(error: RequestError) -> Self {
        unavailable(error.message)
    }
}

pub(super) fn unavailable(why: impl Into<BoxError>) -> StoreError {
    optimistic::unavailable(super::NAME, why)
}

/// The first source of this type.
pub(super) fn cause<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}

/// The error with all of its sources.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in iter::successors(error.source(), |&cause| cause.source()) {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
    }
    text
}
