//! What can go wrong with a request, and what can be done about it.

use std::{error::Error, fmt};

use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        create_table::CreateTableError, describe_table::DescribeTableError,
        describe_time_to_live::DescribeTimeToLiveError, get_item::GetItemError,
        put_item::PutItemError, query::QueryError, transact_write_items::TransactWriteItemsError,
        update_item::UpdateItemError, update_time_to_live::UpdateTimeToLiveError,
    },
    types::error::ConditionalCheckFailedException,
};
use domain::ports::{BoxError, StoreError};

use crate::remote;

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) sort: Trouble,
    pub(super) why: String,
}

/// What can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Too much is asked, or others were in the way: it was not carried out.
    Crowded,
    /// Whether it was carried out is not known.
    Unknown,
    /// There is no such table.
    NoTable,
    /// It is refused, and will be.
    Refused,
}

// === what may pass ===

/// Errors that say more than their code.
pub(super) trait Retried {
    /// Whether it was others that were in the way.
    fn is_conflict(&self) -> bool {
        false
    }

    /// What is said when a condition does not hold.
    fn refusal(&self) -> Option<&ConditionalCheckFailedException> {
        None
    }
}

impl Retried for TransactWriteItemsError {
    fn is_conflict(&self) -> bool {
        let Self::TransactionCanceledException(cancelled) = self else { return false };
        let codes = || cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code());
        let passes = |code: &str| {
            ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]
                .contains(&code)
        };
        codes().any(passes) && !codes().any(|code| code == "ConditionalCheckFailed")
    }
}

impl Retried for CreateTableError {}
impl Retried for DescribeTableError {}
impl Retried for DescribeTimeToLiveError {}
impl Retried for GetItemError {}

impl Retried for PutItemError {
    fn refusal(&self) -> Option<&ConditionalCheckFailedException> {
        let Self::ConditionalCheckFailedException(refusal) = self else { return None };
        Some(refusal)
    }
}

impl Retried for QueryError {}

impl Retried for UpdateItemError {
    fn refusal(&self) -> Option<&ConditionalCheckFailedException> {
        let Self::ConditionalCheckFailedException(refusal) = self else { return None };
        Some(refusal)
    }
}

impl Retried for UpdateTimeToLiveError {}

pub(super) fn is_refused(error: &SdkError<TransactWriteItemsError>) -> bool {
    let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
        error.as_service_error()
    else {
        return false;
    };
    cancelled
        .cancellation_reasons()
        .iter()
        .any(|reason| reason.code() == Some("ConditionalCheckFailed"))
}

/// Too much was asked, or others were in the way.
fn is_crowded<E: ProvideErrorMetadata + Retried>(error: &SdkError<E>) -> bool {
    let codes = [
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    ];
    error.code().is_some_and(|code| codes.contains(&code))
        || error.as_service_error().is_some_and(Retried::is_conflict)
}

/// Whether the same may work in a moment.
pub(super) fn may_pass<E: ProvideErrorMetadata + Retried>(error: &SdkError<E>) -> bool {
    match error {
        SdkError::TimeoutError(_) | SdkError::ResponseError(_) => true,
        SdkError::DispatchFailure(why) => why.is_io() || why.is_timeout() || why.is_other(),
        SdkError::ServiceError(refused) => {
            is_crowded(error) || refused.raw().status().as_u16() >= 500
        }
        SdkError::ConstructionFailure(_) | _ => false,
    }
}

// === failing ===

impl Failure {
    pub(super) fn of<E: ProvideErrorMetadata + Retried + Error + 'static>(
        error: &SdkError<E>,
        table: &str,
    ) -> Self {
        let sort = match error.code() {
            Some("ResourceNotFoundException") => Trouble::NoTable,
            _ if is_crowded(error) => Trouble::Crowded,
            _ if may_pass(error) => Trouble::Unknown,
            _ => Trouble::Refused,
        };
        let why = match (sort, error.code(), error.message()) {
            (Trouble::NoTable, ..) => {
                format!("there is no table {table}; `solvegate store migrate` makes it")
            }
            (_, Some(code), Some(message)) => format!("{code}: {message}"),
            (_, Some(code), None) => code.to_owned(),
            (_, None, _) => causes(error),
        };
        Self { sort, why }
    }

    pub(super) fn refused(why: &str) -> Self {
        Self { sort: Trouble::Refused, why: why.to_owned() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        unavailable(failure.why)
    }
}

pub(super) fn unavailable(why: impl Into<BoxError>) -> StoreError {
    remote::unavailable(super::NAME, why)
}

/// What happened, and why, and why that.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
