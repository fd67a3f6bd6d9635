//! Every decision of the `Store` port, written once for all backends. A decision reads and checks before it writes, so a
//! refused one changes nothing. Its ledger entries are part of the same transaction.
//!
//! - For callers: [`admit`], [`withhold_start`], [`deliver`], [`withdraw`], [`note`]
//! - For the driver: [`lease`], [`advance`], [`settle`]
//! - For operators: [`revive`], [`purge`], [`set_pool`], [`expect`], [`set_pause`]
//! - For maintenance: [`sweep`], [`refill`], [`callbacks`], [`archive`], [`ask_balance`]
//! - After a server lost writes: [`restore`], [`void_stock`]
//!
//! Decisions share code through `support`. Five decisions use another one: `revive` and `reopen` admit claims, `admit` starts
//! solves, and `restore` and `withhold_start` settle attempts.

mod admit;
mod advance;
mod archive;
mod balance;
mod deliver;
mod lease;
mod note;
mod outbox;
mod pause;
mod refill;
mod reopen;
mod restore;
mod revive;
mod settle;
mod start;
pub(crate) mod support;
mod sweep;
mod void_stock;
mod withdraw;

pub(crate) use admit::admit;
pub(crate) use advance::advance;
pub(crate) use archive::{ARCHIVE_PROGRESS, archive};
pub(crate) use balance::{ask_balance, record_balance};
pub(crate) use deliver::deliver;
pub(crate) use lease::{hold, lease, release};
pub(crate) use note::note;
pub(crate) use outbox::{callbacks, called_back};
pub(crate) use pause::{PAUSES_MEMO, PauseRow, pauses, set_pause};
pub(crate) use refill::{expect, refill, set_pool};
pub(crate) use restore::{RecoveryRecord, RestoreOrder, Restored, restore};
pub(crate) use revive::{purge, revive};
pub(crate) use settle::settle;
pub(crate) use start::withhold_start;
pub(crate) use support::pools::StockPlace;
pub(crate) use sweep::sweep;
pub(crate) use void_stock::void_stock;
pub(crate) use withdraw::withdraw;
