//! Small values that the engine learned and reads again after a restart. No decision depends on them.

use crate::{
    Result,
    schema::keys::Text,
    schema::tables::Memos,
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

const LIMIT: usize = 1000;

pub(crate) fn set_memo(tx: &mut dyn WriteTx, name: &str, value: Vec<u8>) -> Result<()> {
    tx.put::<Memos>(Text::new(name), value)
}

/// The memos whose names begin with the prefix.
pub(crate) fn memos(tx: &dyn ReadTx, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let rows = tx.scan::<Memos>(Text::new(prefix)..=Text::after(prefix), Order::Rising, LIMIT)?;
    Ok(rows.into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect())
}
