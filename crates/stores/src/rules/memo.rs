//! Small things the engine learned and wants to find again after a restart. No decision depends on them.

use domain::ports::StoreError;

use crate::{
    keys::Text,
    tables::Memos,
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

const MOST: usize = 1000;

/// Keeps a memo under its name.
pub(crate) fn set_memo(tx: &mut dyn WriteTx, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
    tx.put::<Memos>(Text::new(name), value)
}

/// Memos whose names begin like this.
pub(crate) fn memos(tx: &dyn ReadTx, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let rows = tx.scan::<Memos>(Text::new(prefix)..=Text::after(prefix), Order::Rising, MOST)?;
    Ok(rows.into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect())
}
