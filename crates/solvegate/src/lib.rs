//! The binary's inside: reads the configuration, wires the ports, runs, stops. No rule of the gateway lives here.
//!
//! # Layout
//! - [`cli`]: what can be typed; [`commands`]: what it does
//! - [`config`]: what the operator wants, in two stages
//! - [`client`], [`reach`]: a running gateway, and the way to any server
//! - [`clock`], [`chance`]: time and chance, as the engine wants them

pub mod assemble;
pub mod chance;
pub mod cli;
pub mod client;
pub mod clock;
pub mod commands;
pub mod config;
pub mod exit;
pub mod keys;
pub mod logging;
pub mod output;
pub mod reach;
pub mod shutdown;
