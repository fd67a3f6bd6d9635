//! Readings of the account's balance. The right to read it is taken in one place, so that several gateways on a store do not
//! all ask the provider. The ledger has an entry before and one after the reading: what lies between them may or may not be
//! in the balance.

use std::time::Duration;

use domain::{ledger::Event, money::Money, time::Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    Result,
    schema::{
        codec::corrupt,
        keys::Text,
        tables::{Memos, Table as _},
    },
    tx::{ReadTx, TypedRead, TypedWrite},
};

use super::support::context::{Attribution, DecisionCtx};

/// The last reading that a gateway began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LastReading {
    number: u32,
    asked_at: Timestamp,
}

/// The name of the row among the memos. No memo of the engine begins like this.
const MEMO: &str = "balance";

/// Begins a reading, unless one was begun less than `least_gap` ago and on the same day.
pub(crate) fn ask_balance(ctx: &mut DecisionCtx<'_>, least_gap: Duration) -> Result<Option<u32>> {
    let last = read_row(ctx.tx)?;
    if let Some(LastReading { asked_at, .. }) = last
        && ctx.now.since(asked_at) < least_gap
        && asked_at.day() == ctx.now.day()
    {
        return Ok(None);
    }
    let number = last.map_or(1, |last| last.number.wrapping_add(1));
    let row = LastReading { number, asked_at: ctx.now };
    let bytes =
        postcard::to_stdvec(&row).map_err(|why| corrupt(ctx.tx.backend(), Memos::NAME, why))?;
    ctx.tx.put::<Memos>(Text::new(MEMO), bytes)?;
    ctx.record(Attribution::gateway(), Event::BalanceAsked { number });
    Ok(Some(number))
}

/// Ends the reading with this number.
pub(crate) fn record_balance(ctx: &mut DecisionCtx<'_>, number: u32, amount: Money) {
    ctx.record(Attribution::gateway(), Event::BalanceRead { number, amount });
}

fn read_row(tx: &dyn ReadTx) -> Result<Option<LastReading>> {
    let bytes = tx.get::<Memos>(&Text::new(MEMO))?;
    let read = |bytes: Vec<u8>| postcard::from_bytes(&bytes);
    bytes.map(read).transpose().map_err(|why| corrupt(tx.backend(), Memos::NAME, why))
}
