//! The stored data: tables, keys and the encoding of rows.

pub(crate) mod codec;
pub(crate) mod keys;
pub(crate) mod page;
pub(crate) mod seal;
pub(crate) mod tables;

#[cfg(test)]
mod tests;
