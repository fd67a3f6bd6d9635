//! A private DynamoDB-compatible server, in memory unless a test wants durability.

use std::{
    env, fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::Child,
    sync::Mutex,
};

use super::process::{Directory, free_port, spawn, wait_for};

/// Starts are repeated on another port when a server ends at once, because another process may have taken its port.
const STARTS: u32 = 5;
const LOG: &str = "server.log";

/// A private server on loopback. Dropping it kills the process and removes its directory.
#[derive(Debug)]
pub struct DynamoDbServer {
    port: u16,
    directory: Directory,
    child: Mutex<Child>,
    keeps: bool,
}

impl DynamoDbServer {
    /// Starts an in-memory server and waits until it answers.
    pub fn start() -> Self {
        Self::start_as(false)
    }

    /// Starts a server whose tables survive a kill.
    pub fn start_durable() -> Self {
        Self::start_as(true)
    }

    fn start_as(keeps: bool) -> Self {
        let mut log = String::new();
        for _ in 0..STARTS {
            let (port, directory) = (free_port(), Directory::new());
            let child = Mutex::new(run(port, directory.path(), keeps));
            let server = Self { port, directory, child, keeps };
            if server.wait_until_up() {
                return server;
            }
            log = fs::read_to_string(server.directory.path().join(LOG)).unwrap_or_default();
        }
        panic!("the DynamoDB server ended {STARTS} times at its start; its last log:\n{log}");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a table.
    pub fn url(&self, table: &str) -> String {
        url(self.port, table)
    }

    /// The URL for [`crate::connect_to_corner`], which fills in its own table.
    pub fn any_table(&self) -> String {
        url(self.port, crate::corner::ANY_TABLE)
    }

    /// The directory with everything the server writes.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Kills it and starts it again on the same port.
    pub fn restart(&self) {
        self.kill();
        *self.child.lock().unwrap() = run(self.port, self.directory.path(), self.keeps);
        assert!(self.wait_until_up(), "the DynamoDB server did not restart");
    }

    fn wait_until_up(&self) -> bool {
        let mut up = false;
        wait_for("the DynamoDB server listens or ends", || {
            up = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            up || self.child.lock().unwrap().try_wait().unwrap().is_some()
        });
        up && self.child.lock().unwrap().try_wait().unwrap().is_none()
    }
}

impl Drop for DynamoDbServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The URL of a table on a local port.
pub fn url(port: u16, table: &str) -> String {
    format!("dynamodb:{table}?region=local&endpoint=http%3A%2F%2F127.0.0.1%3A{port}")
}

fn run(port: u16, directory: &Path, keeps: bool) -> Child {
    let mut args: Vec<String> = ["serve", "--port"].map(Into::into).to_vec();
    args.push(port.to_string());
    if keeps {
        args.extend(["--db-path".into(), directory.join("tables.db").display().to_string()]);
    }
    spawn(&dynamodb_server().display().to_string(), &args, &directory.join(LOG))
}

/// The program that `scripts/test --dynamodb-official` names, or the one built with the tests, which is in the same
/// directory as the test program or in its parent.
pub fn dynamodb_server() -> PathBuf {
    let named = env::var_os("SOLVEGATE_DYNAMODB_SERVER").map(PathBuf::from);
    let this = env::current_exe().expect("a program knows where it is");
    let beside = this.ancestors().skip(1).take(2).map(|place| place.join("dynamodb-server"));
    let found = named.into_iter().chain(beside).find(|file| file.is_file());
    found.expect("dynamodb-server is missing; `cargo build -p store-tests --bins` builds it")
}
