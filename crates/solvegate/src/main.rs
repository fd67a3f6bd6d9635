//! The binary: what was typed becomes an exit code. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use solvegate::{cli::Cli, commands};

/// Many small, short-lived buffers: measurably faster than the system's allocator on the hit path.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::run(Cli::parse())
}
