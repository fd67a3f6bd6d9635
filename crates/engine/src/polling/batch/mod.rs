//! One poll call for many tasks: `support` knows where the provider takes such calls, `queue` holds the tasks that wait for
//! one, `rule` decides when a call is worth it, `poll` makes it.

pub(crate) mod poll;
pub(crate) mod queue;
pub(crate) mod rule;
pub(crate) mod support;
