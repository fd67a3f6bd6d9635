//! The binary's inside: reads the configuration, wires the ports, runs, stops. No rule of the gateway lives here.
//!
//! # Layout
//! - [`cli`]: what can be typed; [`commands`]: what it does
//! - [`config`]: what the operator wants, in two stages
//! - [`clock`], [`chance`]: time and chance, as the engine wants them

pub mod chance;
pub mod clock;
pub mod config;
