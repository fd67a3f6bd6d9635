//! The program: reads the configuration, connects the ports, runs and stops. The rules of the gateway are in other crates.
//!
//! # Layout
//! - [`cli`]: the command line; [`commands`]: its implementation; [`output`], [`exit`], [`logging`]: results, exit codes, logs
//! - [`config`]: the configuration; [`keys`]: generated keys; [`assemble`]: an engine with its ports; [`signals`]
//! - [`open_files`]: the limit of open files; [`place`]: what tells this gateway from others
//! - [`client`], [`endpoint`]: the HTTP client for a running gateway
//! - [`clock`], [`chance`]: the ports for time and randomness

pub mod assemble;
pub mod chance;
pub mod cli;
pub mod client;
pub mod clock;
pub mod commands;
pub mod config;
pub mod endpoint;
pub mod exit;
pub mod keys;
pub mod logging;
pub mod open_files;
pub mod output;
pub mod place;
pub mod signals;
