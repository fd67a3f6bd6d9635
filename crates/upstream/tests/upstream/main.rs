//! The upstream against small servers that behave badly, byte by byte.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

mod addresses;
mod callbacks;
mod poll;
mod simulated;
mod submit;
mod support;
mod tls;
