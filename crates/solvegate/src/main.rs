//! The binary: parses the command line and returns an exit code. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use solvegate::{cli::Cli, commands};

/// Measurably faster than the system's allocator for the many small, short-lived buffers of the hit path.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::run(Cli::parse())
}
