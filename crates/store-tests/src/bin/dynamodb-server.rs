//! A DynamoDB-compatible server in its own process, so that tests can kill it. It takes the options of dynoxide, whose
//! library it runs. It is built with the tests because it shares their dependencies: `cargo install dynoxide-rs` took
//! longer than the rest of the build. Usage: `dynamodb-server serve --port PORT [--db-path FILE]`; without a file it
//! keeps its tables in memory.

use std::{env, error::Error};

use dynoxide::{Database, server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (port, database) = match arguments[..] {
        ["serve", "--port", port] => (port, Database::memory()?),
        ["serve", "--port", port, "--db-path", file] => (port, Database::new(file)?),
        _ => return Err("usage: dynamodb-server serve --port PORT [--db-path FILE]".into()),
    };
    Ok(server::start("127.0.0.1", port.parse()?, database).await?)
}
