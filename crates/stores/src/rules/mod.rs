//! Every decision of the `Store` port, written once on top of a tx. A rule reads and checks before it writes, so
//! a refused decision changes nothing; its entries are part of the same step.
//!
//! - [`admit`], [`deliver`], [`withdraw`]: what callers ask
//! - [`lease`], [`advance`], [`settle`]: what the driver does
//! - [`revive`], [`purge`]: what people do with dead letters; [`callbacks`]: the outbox
//! - [`refill`], [`set_pool`], [`expect`]: standing orders; `margin`: what reports teach; [`memos`]: what the engine learned
//! - [`sweep`]: what time does; [`note`]: entries without a state change
//! - [`restore`], [`void_stock`]: after a store has forgotten; [`archive`]: the history of another store
//! - `place`: who gets a token; `bury`: what becomes of a failed solve; `hurry`: what becomes of revived work when a live
//!   claim wants it; `keep`: records and their indexes; `step`: the ledger

mod admit;
mod advance;
mod archive;
mod bury;
mod deliver;
mod garbage;
mod hurry;
mod keep;
mod lease;
mod margin;
mod memo;
mod note;
mod outbox;
mod place;
mod pools;
mod restore;
mod revive;
mod settle;
mod step;
mod sweep;
mod withdraw;

pub(crate) use admit::admit;
pub(crate) use advance::advance;
pub(crate) use archive::{HOW_FAR, archive, drop_archived};
pub(crate) use deliver::deliver;
pub(crate) use lease::{hold, lease, release};
pub(crate) use memo::{memos, set_memo};
pub(crate) use note::note;
pub(crate) use outbox::{callbacks, called_back};
pub(crate) use pools::{coming, expect, refill, set_pool, usable};
pub(crate) use restore::{Relic, StockPlace, Turn, restore, void_stock};
pub(crate) use revive::{purge, revive};
pub(crate) use settle::settle;
pub(crate) use step::subject;
pub(crate) use sweep::sweep;
pub(crate) use withdraw::withdraw;

use domain::ports::StoreError;

use crate::tx::ReadTx;

/// Something a record points at is not there.
fn missing(tx: &dyn ReadTx, what: &'static str, why: String) -> StoreError {
    StoreError::Corrupt { backend: tx.backend(), what, source: why.into() }
}
