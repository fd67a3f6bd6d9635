//! Starts private servers for manual use or a test, prints their URLs, and stops them when its standard input ends.
//! Usage: `services [redis] [postgres] [dynamodb]`; all three without a name.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is for a person")]

use std::{io::Read as _, process::ExitCode};

use store_tests::servers::{shared_dynamodb, shared_postgres, shared_redis};

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = ["redis", "postgres", "dynamodb"].map(str::to_owned).to_vec();
    }
    for name in &names {
        match name.as_str() {
            "redis" => println!("{}", shared_redis().url()),
            "postgres" => println!("{}", shared_postgres().url()),
            "dynamodb" => println!("{}", shared_dynamodb().url("solvegate")),
            other => {
                eprintln!(
                    "unknown server {other:?}; usage: services [redis] [postgres] [dynamodb]"
                );
                return ExitCode::from(2);
            }
        }
    }
    // The kernel stops the servers with this process.
    std::io::stdin().read_to_end(&mut Vec::new()).map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS)
}
