//! Counts the requests of this process and the capacity units they consumed.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::types::ConsumedCapacity;

/// Capacity units are counted in thousandths.
#[derive(Debug, Default)]
pub(super) struct UsageCounters {
    requests: AtomicU64,
    retries: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// The requests and capacity units of this process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DynamoDbUse {
    /// Requests, including retries.
    pub requests: u64,
    /// Retries.
    pub retries: u64,
    /// Read units.
    pub read_units: f64,
    /// Write units.
    pub write_units: f64,
}

impl UsageCounters {
    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of retries so far.
    pub(super) fn count_retry(&self) -> u64 {
        self.retries.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn count_read(&self, consumed: Option<&ConsumedCapacity>) {
        add(&self.reads, consumed);
    }

    pub(super) fn count_write(&self, consumed: Option<&ConsumedCapacity>) {
        add(&self.writes, consumed);
    }

    pub(super) fn total(&self) -> DynamoDbUse {
        #[expect(clippy::cast_precision_loss, reason = "only displayed")]
        let units = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / 1000.0;
        DynamoDbUse {
            requests: self.requests.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            read_units: units(&self.reads),
            write_units: units(&self.writes),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small and not negative"
)]
fn add(counter: &AtomicU64, consumed: Option<&ConsumedCapacity>) {
    let units = consumed.and_then(ConsumedCapacity::capacity_units).unwrap_or(0.0);
    counter.fetch_add((units * 1000.0) as u64, Ordering::Relaxed);
}
