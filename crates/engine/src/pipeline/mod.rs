//! The life of a claim, one step per file and in this order: `admit` with `start`, then (driven by scheduler/driver.rs)
//! `submit`, `poll` and `settle`, and at last `fetch` with `reread`.

pub(crate) mod admit;
pub(crate) mod fetch;
pub(crate) mod poll;
mod reopening;
pub(crate) mod reread;
pub(crate) mod settle;
mod start;
pub(crate) mod submit;
