//! The Redis store keeps its promises when the server does not.

mod bells;
mod crowds;
mod differential;
mod keys;
mod losses;
mod skew;
mod tls;
