//! Small things the engine learned and wants to find again after a restart. No decision depends on them.

use domain::ports::StoreError;

use crate::{
    shelf::{Order, Shelf, ShelfMut, Text},
    tables::Memos,
};

const MOST: usize = 1000;

/// Keeps a memo under its name.
pub(crate) fn set_memo<S: ShelfMut>(
    shelf: &mut S,
    name: &str,
    value: Vec<u8>,
) -> Result<(), StoreError> {
    shelf.put::<Memos>(Text::new(name), value)
}

/// Memos whose names begin like this.
pub(crate) fn memos<S: Shelf>(
    shelf: &S,
    prefix: &str,
) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let rows = shelf.scan::<Memos>(Text::new(prefix)..=Text::after(prefix), Order::Rising, MOST)?;
    Ok(rows.into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect())
}
