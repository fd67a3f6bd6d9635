//! Tests of the real binary. One test crate, because linking is the slow part; one module per theme.

mod support;

mod bad_inputs;
mod cli;
mod crash;
mod drain;
mod end_to_end;
mod faults;
mod readme;
mod secrets;
mod slow;
