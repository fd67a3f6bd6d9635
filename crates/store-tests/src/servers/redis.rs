//! One real `redis-server`, which a test may kill, restart and pause.

use std::{
    fs,
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use super::process::{Directory, free_port, spawn, wait_for};

/// How often another port is tried when a server ends at once: somebody else may have taken its port.
const STARTS: u32 = 5;

const LOG: &str = "redis.log";

/// What a server keeps when it is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    #[default]
    None,
    /// Everything it answered, unless the machine dies too: `appendfsync everysec`.
    EverySecond,
    /// Everything it answered: `appendfsync always`.
    Always,
}

/// How a server is to be.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// What it keeps.
    pub persistence: Persistence,
    /// What it asks of its clients. The same one is shown to a master.
    pub password: Option<String>,
    /// The port of its master.
    pub replica_of: Option<u16>,
    /// More of the command line: `["--maxmemory-policy", "allkeys-lru"]`.
    pub extra: Vec<String>,
}

/// A `redis-server` of the test's own, on loopback. Dropping it ends the process and removes its directory.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    port: u16,
    directory: Directory,
    child: Mutex<Child>,
}

// === impl RedisServer ===

impl RedisServer {
    /// Starts a server and waits until it answers; a replica, until it has its master's data.
    pub fn start(options: &RedisOptions) -> Self {
        require("redis-server");
        require("redis-cli");
        let mut log = String::new();
        for _ in 0..STARTS {
            let (port, directory) = (free_port(), Directory::new());
            let child = Mutex::new(run(options, port, &directory));
            let server = Self { options: options.clone(), port, directory, child };
            if server.comes_up() {
                server.wait_for_master();
                return server;
            }
            log = server.log();
        }
        panic!(
            "redis-server ended {STARTS} times when it was started; the last time it said:\n{log}"
        );
    }

    /// Where it is, with its password: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        let password =
            self.options.password.as_ref().map(|word| format!(":{word}@")).unwrap_or_default();
        format!("redis://{password}127.0.0.1:{}", self.port)
    }

    /// Where it is.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether its process is there, be it paused.
    pub fn is_running(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// Ends it by SIGKILL, paused or not.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Kills it and starts it again, on the same port with the same directory.
    pub fn restart(&self) {
        self.kill();
        *self.child.lock().unwrap() = run(&self.options, self.port, &self.directory);
        assert!(self.comes_up(), "redis-server did not come up again; it said:\n{}", self.log());
    }

    /// Stops it in its tracks: connections stay, nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
        wait_for("a paused server stands still", || self.is_paused());
    }

    /// Lets a paused one go on.
    pub fn resume(&self) {
        self.signal("CONT");
        wait_for("a resumed server goes on", || !self.is_paused());
    }

    /// Forgets all keys.
    pub fn flush(&self) {
        self.cli(&["flushall"]);
    }

    /// What `redis-cli` prints for a command. Panics with it when the command fails.
    #[track_caller]
    pub fn cli(&self, args: &[&str]) -> String {
        self.ask(args).unwrap_or_else(|said| panic!("redis-cli {args:?} failed: {said}"))
    }

    fn ask(&self, args: &[&str]) -> Result<String, String> {
        let port = self.port.to_string();
        let mut all = vec!["-p", port.as_str()];
        all.extend(args);
        redis_cli(self.options.password.as_deref(), &all)
    }

    /// Whether it answers; not so when its process ended. Another server may answer on this port, so it is asked who it is.
    fn comes_up(&self) -> bool {
        let me = format!("process_id:{}", self.child.lock().unwrap().id());
        let is_me = |info: String| info.lines().any(|line| line.trim_end() == me);
        let answers =
            || self.ask(&["ping"]).is_ok() && self.ask(&["info", "server"]).is_ok_and(is_me);
        let mut up = false;
        wait_for("redis-server answers or ends", || {
            up = answers();
            up || !self.is_running()
        });
        up
    }

    /// A replica answers before it has anything to answer with.
    pub(super) fn wait_for_master(&self) {
        wait_for("a replica has its master's data", || {
            let info = self.cli(&["info", "replication"]);
            info.contains("role:master") || info.contains("master_link_status:up")
        });
    }

    fn signal(&self, name: &str) {
        let pid = self.child.lock().unwrap().id();
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(sent.unwrap().success(), "redis-server {pid} is not there to get SIG{name}");
    }

    fn is_paused(&self) -> bool {
        let pid = self.child.lock().unwrap().id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // The state follows the name, which is in brackets.
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
    // With a diskless sync a replica waits five seconds for others, and says that it is up a moment before its master
    // passes writes on to it.
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

/// Runs `redis-cli`: what it printed, as an error when it failed or had no answer within 30 seconds.
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
