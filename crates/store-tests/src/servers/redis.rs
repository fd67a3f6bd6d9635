//! One real `redis-server`, which a test may kill, restart and pause.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use super::process::{Directory, free_port, spawn, wait_for};

/// Starts are repeated on another port when a server ends at once, because another process may have taken its port.
const STARTS: u32 = 5;

const LOG: &str = "redis.log";

/// The data that survives a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    #[default]
    None,
    /// Every acknowledged write, except the last ones when the machine crashes or a background fsync is slow:
    /// `appendfsync everysec`.
    EverySecond,
    /// Every acknowledged write: `appendfsync always`.
    Always,
}

#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    pub persistence: Persistence,
    /// Required from clients, and used to log in to the master.
    pub password: Option<String>,
    /// The port of its master.
    pub replica_of: Option<u16>,
    /// Further arguments: `["--maxmemory-policy", "allkeys-lru"]`.
    pub extra: Vec<String>,
}

/// A private `redis-server` on loopback. Dropping it kills the process and removes its directory.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    port: u16,
    directory: Directory,
    child: Mutex<Child>,
}

// === impl RedisServer ===

impl RedisServer {
    /// Starts a server and waits until it answers, and a replica until it has its master's data.
    pub fn start(options: &RedisOptions) -> Self {
        require("redis-server");
        require("redis-cli");
        let mut log = String::new();
        for _ in 0..STARTS {
            let (port, directory) = (free_port(), Directory::new());
            let child = Mutex::new(run(options, port, &directory));
            let server = Self { options: options.clone(), port, directory, child };
            if server.wait_until_up() {
                server.wait_for_master();
                return server;
            }
            log = server.log();
        }
        panic!("redis-server ended {STARTS} times at its start; its last log:\n{log}");
    }

    /// With the password, if there is one: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        let password =
            self.options.password.as_ref().map(|word| format!(":{word}@")).unwrap_or_default();
        format!("redis://{password}127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory with everything the server writes.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// True also for a paused process.
    pub fn is_running(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// Sends SIGKILL, which also ends a paused process.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Kills it and starts it again, on the same port and directory.
    pub fn restart(&self) {
        self.kill();
        *self.child.lock().unwrap() = run(&self.options, self.port, &self.directory);
        assert!(self.wait_until_up(), "redis-server did not restart; its log:\n{}", self.log());
    }

    /// Sends SIGSTOP: connections stay open, and nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
        wait_for("the server is stopped", || self.is_paused());
    }

    pub fn resume(&self) {
        self.signal("CONT");
        wait_for("the server is resumed", || !self.is_paused());
    }

    pub fn flush(&self) {
        self.cli(&["flushall"]);
    }

    /// Runs `redis-cli` and returns its output. Panics when the command fails.
    #[track_caller]
    pub fn cli(&self, args: &[&str]) -> String {
        self.try_cli(args).unwrap_or_else(|said| panic!("redis-cli {args:?} failed: {said}"))
    }

    fn try_cli(&self, args: &[&str]) -> Result<String, String> {
        let port = self.port.to_string();
        let mut all = vec!["-p", port.as_str()];
        all.extend(args);
        redis_cli(self.options.password.as_deref(), &all)
    }

    /// Waits until the server answers or its process ends. Another server may have the port, so the process id is
    /// compared.
    fn wait_until_up(&self) -> bool {
        let me = format!("process_id:{}", self.child.lock().unwrap().id());
        let is_me = |info: String| info.lines().any(|line| line.trim_end() == me);
        let answers = || {
            self.try_cli(&["ping"]).is_ok() && self.try_cli(&["info", "server"]).is_ok_and(is_me)
        };
        let mut up = false;
        wait_for("redis-server answers or ends", || {
            up = answers();
            up || !self.is_running()
        });
        up
    }

    /// A replica answers before it has its master's data.
    pub(super) fn wait_for_master(&self) {
        wait_for("a replica has its master's data", || {
            let info = self.cli(&["info", "replication"]);
            info.contains("role:master") || info.contains("master_link_status:up")
        });
    }

    fn signal(&self, name: &str) {
        let pid = self.child.lock().unwrap().id();
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(sent.unwrap().success(), "redis-server {pid} is gone and cannot get SIG{name}");
    }

    fn is_paused(&self) -> bool {
        let pid = self.child.lock().unwrap().id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // The state follows the process name, which is in brackets.
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run(options: &RedisOptions, port: u16, directory: &Directory) -> Child {
    let log = directory.path().join(LOG);
    spawn("redis-server", &arguments(options, port, directory), &log)
}

fn arguments(options: &RedisOptions, port: u16, directory: &Directory) -> Vec<String> {
    let directory = directory.path().to_str().expect("the temporary directory has a plain name");
    // With diskless sync a replica waits five seconds for others, and reports itself up a moment before its master
    // forwards writes to it.
    let fixed = format!("--port {port} --bind 127.0.0.1 --dir {directory} --repl-diskless-sync no");
    let mut all: Vec<String> = fixed.split(' ').map(Into::into).collect();
    all.extend(["--save".into(), String::new()]);
    let fsync = match options.persistence {
        Persistence::None => None,
        Persistence::EverySecond => Some("everysec"),
        Persistence::Always => Some("always"),
    };
    if let Some(fsync) = fsync {
        all.extend(["--appendonly", "yes", "--appendfsync", fsync].map(Into::into));
    }
    if let Some(password) = &options.password {
        all.extend(["--requirepass", password, "--masterauth", password].map(Into::into));
    }
    if let Some(master) = options.replica_of {
        all.extend(["--replicaof".into(), "127.0.0.1".into(), master.to_string()]);
    }
    all.extend(options.extra.iter().cloned());
    all
}

/// Runs `redis-cli` and returns its output, as an error when it fails or has no answer within 30 seconds.
pub(super) fn redis_cli(password: Option<&str>, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("timeout");
    command.args(["30", "redis-cli", "-e"]).args(args).stdin(Stdio::null());
    match password {
        Some(password) => command.env("REDISCLI_AUTH", password),
        None => command.env_remove("REDISCLI_AUTH"),
    };
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    if output.status.success() {
        return Ok(said);
    }
    Err(format!("{} {said} {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

fn require(program: &str) {
    if let Err(why) = Command::new(program).arg("--version").output() {
        panic!("{program} cannot be run: {why}; install redis-server: scripts/test does it");
    }
}
