//! Reconciliation: the ledger against the provider's balance.
//!
//! Between two readings of the balance the provider charged their difference, and the ledger says what it should have been.
//! [`Collector`] reads the ledger once, in order, and keeps sums and whatever is uncertain; [`Collected::judge`] compares.
//!
//! Order and not time decides on which side of a reading a charge lies. A submission follows its durable intent, and the
//! provider charges for it at the acceptance or at the answer. So an attempt that ended in the ledger before the gateway
//! asked for the balance is in the balance, one that began after the reply is not, and any other may be either.

mod collect;
mod judge;
mod sums;

#[cfg(test)]
mod tests;

pub use collect::{Collected, Collector};
pub use judge::{BooksVerdict, Doubt, Item, Reconciliation, Segment, TopUp};

use crate::{money::Money, time::Timestamp};

/// One reading of the account's balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceReading {
    /// When its entry was written.
    pub at: Timestamp,
    /// The balance.
    pub amount: Money,
    /// The place in the ledger after which the gateway asked.
    asked: u64,
    /// The place at which the answer was written.
    read: u64,
}
