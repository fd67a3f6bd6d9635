//! A private PostgreSQL server, which a test may crash, restart and disconnect, and a pooler before it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use super::process::{Directory, clean_command, free_port, spawn_as, wait_for};

#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Whether commits are synced to disk. Without it a server is faster, and loses data when the machine crashes.
    pub durable: bool,
    /// A certificate and its key as PEM. With them the server accepts TLS connections only.
    pub tls: Option<(String, String)>,
    /// Further settings: `["max_connections=20"]`.
    pub extra: Vec<String>,
}

/// A private PostgreSQL on loopback. Dropping it ends the process and removes its directory.
#[derive(Debug)]
pub struct PostgresServer {
    options: PostgresOptions,
    port: u16,
    directory: Directory,
    child: Mutex<Child>,
}

/// A `PgBouncer` in transaction mode before a server.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    child: Mutex<Child>,
    _directory: Directory,
}

/// Starts are repeated on another port when a server ends at once, because another process may have taken its port.
const STARTS: u32 = 5;
const LOG: &str = "server.log";
/// Neither program runs as root.
const USER: &str = "postgres";

// === impl PostgresServer ===

impl PostgresServer {
    /// Starts a server and waits until it answers.
    pub fn start(options: &PostgresOptions) -> Self {
        let mut log = String::new();
        for _ in 0..STARTS {
            let (port, directory) = (free_port(), Directory::new());
            give_to_user(directory.path());
            create_data_directory(&directory.path().join("data"));
            if let Some(tls) = &options.tls {
                use_tls(&directory, tls);
            }
            let child = Mutex::new(run(options, port, &directory));
            let server = Self { options: options.clone(), port, directory, child };
            if server.wait_until_up() {
                return server;
            }
            log = server.log();
        }
        panic!("postgres ended {STARTS} times at its start; its last log:\n{log}");
    }

    /// Starts a read-only replica of this server, which needs `wal_level=replica` and `max_wal_senders`.
    #[must_use]
    pub fn standby(&self) -> Self {
        let (port, directory) = (free_port(), Directory::new());
        give_to_user(directory.path());
        let data = directory.path().join("data").display().to_string();
        let from = self.port.to_string();
        let server = ["-h", "127.0.0.1", "-p", &from, "-U", USER, "-D", &data];
        run_initializer(
            "pg_basebackup",
            &[&server[..], &["-X", "stream", "-R", "-N", "-c", "fast"]].concat(),
        );
        let child = Mutex::new(run(&self.options, port, &directory));
        let server = Self { options: self.options.clone(), port, directory, child };
        assert!(server.wait_until_up(), "the standby did not start; its log:\n{}", server.log());
        server
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory with everything the server writes.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn is_running(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// Ends it like a crash, without flushing anything.
    pub fn crash(&self) {
        let mut child = self.child.lock().unwrap();
        signal(child.id(), "QUIT");
        child.wait().unwrap();
    }

    /// Crashes it, if it runs, and starts it again on the same port and directory.
    pub fn restart(&self) {
        if self.is_running() {
            self.crash();
        }
        *self.child.lock().unwrap() = run(&self.options, self.port, &self.directory);
        assert!(self.wait_until_up(), "postgres did not restart; its log:\n{}", self.log());
    }

    /// Keeps a copy of its files, for which it is stopped for a moment.
    pub fn save(&self) {
        self.crash();
        copy(&self.directory.path().join("data"), &self.directory.path().join("saved"));
        self.restart();
    }

    /// Goes back to the state that was saved.
    pub fn roll_back(&self) {
        self.crash();
        copy(&self.directory.path().join("saved"), &self.directory.path().join("data"));
        self.restart();
    }

    /// Terminates the connections of stores that match a condition on `pg_stat_activity`, and returns their number.
    pub fn terminate(&self, condition: &str) -> usize {
        let ended = self.psql(&format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE application_name = 'solvegate' AND {condition}"
        ));
        ended.parse().unwrap()
    }

    /// Runs a statement: one line per row, columns separated by `|`. Panics when it fails.
    #[track_caller]
    pub fn psql(&self, statement: &str) -> String {
        self.try_psql(statement).unwrap_or_else(|said| panic!("{statement} failed: {said}"))
    }

    fn try_psql(&self, statement: &str) -> Result<String, String> {
        let mut psql = clean_command("timeout");
        let port = self.port.to_string();
        // `psql` does not verify the server's certificate.
        psql.env("PGSSLMODE", "prefer");
        psql.args(["60", "psql", "-h", "127.0.0.1", "-p", &port, "-U", USER, "-XAtq"]);
        psql.args(["-v", "ON_ERROR_STOP=1", "-c", statement, "postgres"]).stdin(Stdio::null());
        let output = psql.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if output.status.success() {
            return Ok(said);
        }
        Err(format!("{} {said} {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }

    /// Waits until the server answers or its process ends. Another server may have the port, so the data directory is
    /// compared.
    fn wait_until_up(&self) -> bool {
        let data = self.directory.path().join("data").display().to_string();
        let mut up = false;
        wait_for("postgres answers or ends", || {
            up = self.try_psql("SHOW data_directory").is_ok_and(|said| said == data);
            up || !self.is_running()
        });
        up
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Its child processes end only when it shuts down itself.
        if self.is_running() {
            self.crash();
        }
    }
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(sent.unwrap().success(), "the server {pid} is not there to get SIG{name}");
}

/// Creates the data directory.
fn create_data_directory(data: &Path) {
    let data = data.display().to_string();
    run_initializer(
        "initdb",
        &["-A", "trust", "-N", "-U", USER, "-E", "UTF8", "--locale=C", "-D", &data],
    );
}

/// Runs a program that creates a data directory.
fn run_initializer(name: &str, args: &[&str]) {
    let mut words = as_user();
    words.push(program(name).display().to_string());
    let mut command = clean_command(&words[0]);
    let made = command.args(&words[1..]).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(made.status.success(), "{name} failed: {}", String::from_utf8_lossy(&made.stderr));
}

/// Installs a certificate and its key, and refuses connections without TLS.
fn use_tls(directory: &Directory, (certificate, key): &(String, String)) {
    let data = directory.path().join("data");
    fs::write(data.join("server.crt"), certificate).unwrap();
    fs::write(data.join("server.key"), key).unwrap();
    fs::set_permissions(data.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust\n").unwrap();
    give_to_user(directory.path());
}

/// Without durability autovacuum is off too: with a schema for each case it would scan ten thousand tables.
fn run(options: &PostgresOptions, port: u16, directory: &Directory) -> Child {
    let mut args: Vec<String> =
        vec!["-D".into(), directory.path().join("data").display().to_string()];
    let durable = if options.durable { "on" } else { "off" };
    let fixed = format!(
        "port={port} listen_addresses=127.0.0.1 unix_socket_directories= max_connections=400 shared_buffers=64MB \
         fsync={durable} full_page_writes={durable} autovacuum={durable} wal_level=minimal max_wal_senders=0 \
         log_min_messages=warning"
    );
    let settings = fixed.split(' ').filter(|setting| !setting.is_empty()).map(ToOwned::to_owned);
    let tls = options.tls.iter().map(|_| "ssl=on".to_owned());
    for setting in settings.chain(tls).chain(options.extra.iter().cloned()) {
        args.extend(["-c".into(), setting]);
    }
    let program = program("postgres").display().to_string();
    spawn_as(user(), &program, &args, &directory.path().join(LOG))
}

// === impl PgBouncer ===

impl PgBouncer {
    /// Starts a pooler in transaction mode with few server connections, used round robin.
    pub fn start(server: &PostgresServer) -> Self {
        for _ in 0..STARTS {
            let (port, directory) = (free_port(), Directory::new());
            let ini = directory.path().join("pgbouncer.ini");
            let text = format!(
                "[databases]\n* = host=127.0.0.1 port={} user={USER}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
                 default_pool_size = 10\nserver_round_robin = 1\nmax_client_conn = 2000\n",
                server.port()
            );
            fs::write(&ini, text).unwrap();
            give_to_user(directory.path());
            let program = program("pgbouncer").display().to_string();
            let args = [ini.display().to_string()];
            let child = spawn_as(user(), &program, &args, &directory.path().join(LOG));
            let bouncer = Self { port, child: Mutex::new(child), _directory: directory };
            if bouncer.wait_until_up() {
                return bouncer;
            }
        }
        panic!("pgbouncer ended {STARTS} times at its start");
    }

    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    fn wait_until_up(&self) -> bool {
        let mut up = false;
        wait_for("pgbouncer listens or ends", || {
            up = std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            up || self.child.lock().unwrap().try_wait().unwrap().is_some()
        });
        up && self.child.lock().unwrap().try_wait().unwrap().is_none()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The URL of a store behind a pooler or proxy. Notifications need a session, so they go to the server directly.
pub fn through_pooler(url: &str, server: &PostgresServer) -> String {
    let direct = server.url().replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    format!("{url}?listen={direct}")
}

// === programs and users ===

/// The user to switch to, because PostgreSQL does not run as root.
fn user() -> Option<&'static str> {
    let output = Command::new("id").arg("-u").output().unwrap();
    (output.stdout == b"0\n").then_some(USER)
}

/// The prefix of a command that must run as that user.
fn as_user() -> Vec<String> {
    let words: &[&str] = if user().is_some() { &["runuser", "-u", USER, "--"] } else { &["env"] };
    words.iter().map(ToString::to_string).collect()
}

/// Gives a directory to that user.
/// Replaces a directory by another one, with its owners and modes.
fn copy(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn give_to_user(directory: &Path) {
    if let Some(user) = user() {
        let given = Command::new("chown").args(["-R", user]).arg(directory).status();
        assert!(
            given.unwrap().success(),
            "cannot change the owner of {} to {user}",
            directory.display()
        );
    }
}

/// Finds a program on the path, where `pg_config` points, or where Debian puts it.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if let Ok(said) = Command::new("pg_config").arg("--bindir").output() {
        places.push(String::from_utf8_lossy(&said.stdout).trim().into());
    }
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        places.extend(versions.filter_map(Result::ok).map(|version| version.path().join("bin")));
    }
    places.push("/usr/sbin".into());
    let found = places.into_iter().map(|place| place.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is missing; install postgresql and pgbouncer: scripts/test does it")
    })
}
