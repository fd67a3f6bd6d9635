//! The records that a gateway restores after its server lost writes, and their order.

use std::sync::Arc;

use domain::{
    budget::BudgetBook,
    challenge::Challenge,
    claim::{Claim, ClaimState},
    dead_letter::DeadLetter,
    id::{HolderId, SolveId},
    ledger::Total,
    pool::Pool,
    solve::Solve,
    time::Day,
};

use crate::{
    decisions::{PauseRow, support::ledger::TotalKey},
    schema::{keys::Text, page::LedgerPage, tables::HolderRow},
};

/// The last version of a record that this process wrote.
#[derive(Clone, Debug)]
pub(crate) enum RecoveryRecord {
    Holder(HolderId, HolderRow),
    Challenge(SolveId, Arc<Challenge>),
    Solve(Box<Solve>),
    Claim(Box<Claim>),
    DeadLetter(Box<DeadLetter>),
    Pool(Box<Pool>),
    /// The server lost writes: it has `found` commits of the `known` ones.
    Loss {
        known: u64,
        found: u64,
    },
    Page(u64, LedgerPage),
    /// A lane of a total, under its own key: added to another lane, it would be counted twice.
    Total(TotalKey, Box<Total>),
    Spent((Day, Text), BudgetBook),
    Authorised(Day, u32),
    Pauses(PauseRow),
}

/// The order in which records are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RestoreOrder {
    /// The holders whose leases are valid, and what is paused.
    First,
    /// Records that prove a payment or an end.
    Own,
    /// Solves whose challenge another gateway has to restore first.
    Deferred,
    /// Claims that wait for a solve, which another gateway may have to restore first.
    Waiting,
    /// Records that no decision of the next seconds depends on.
    Last,
}

impl RecoveryRecord {
    /// Whether the record is about work in progress.
    pub(crate) fn is_under_way(&self) -> bool {
        match self {
            Self::Solve(solve) => !solve.stage.is_final(),
            Self::Claim(claim) => claim.state == ClaimState::Waiting,
            Self::Holder(..)
            | Self::Pool(_)
            | Self::Spent(..)
            | Self::Authorised(..)
            | Self::Pauses(_) => true,
            Self::Challenge(..)
            | Self::DeadLetter(_)
            | Self::Loss { .. }
            | Self::Page(..)
            | Self::Total(..) => false,
        }
    }

    pub(crate) fn order(&self) -> RestoreOrder {
        match self {
            Self::Holder(..) | Self::Pauses(_) => RestoreOrder::First,
            Self::Claim(claim) if claim.state == ClaimState::Waiting => RestoreOrder::Waiting,
            Self::Challenge(..)
            | Self::Solve(_)
            | Self::Claim(_)
            | Self::Spent(..)
            | Self::Authorised(..) => RestoreOrder::Own,
            Self::DeadLetter(_)
            | Self::Pool(_)
            | Self::Loss { .. }
            | Self::Page(..)
            | Self::Total(..) => RestoreOrder::Last,
        }
    }
}
