//! The upstream against small servers that behave badly, byte by byte.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

mod addresses;
mod batch;
mod callbacks;
mod pingback;
mod poll;
mod simulated;
mod submit;
mod support;
mod tls;
