//! One real PostgreSQL server, which a test may crash, restart and take connections from; and a pooler before it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use super::process::{Directory, clean_command, free_port, spawn_as, wait_for};

/// How a server is to be.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Whether what it confirms is on the disk. Without it a server is faster, and forgets when the machine dies.
    pub durable: bool,
    /// A certificate and its key, PEM: then it takes TLS, and over TCP nothing else.
    pub tls: Option<(String, String)>,
    /// More settings: `["max_connections=20"]`.
    pub extra: Vec<String>,
}

/// A PostgreSQL server of the test's own, on loopback. Dropping it ends the process and removes its directory.
#[derive(Debug)]
pub struct PostgresServer {
    options: PostgresOptions,
    port: u16,
    directory: Directory,
    child: Mutex<Child>,
}

/// A pooler in transaction mode before a server.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    child: Mutex<Child>,
    _directory: Directory,
}

/// How often another port is tried when a server ends at once: somebody else may have taken its port.
const STARTS: u32 = 5;
const LOG: &str = "server.log";
/// Root may not run either program.
const USER: &str = "postgres";

// === impl PostgresServer ===

impl PostgresServer {
    /// Starts a server and waits until it answers.
    pub fn start(options: &PostgresOptions) -> Self {
        let mut log = String::new();
        for _ in 0..STARTS {
            let (port, directory) = (free_port(), Directory::new());
            own(directory.path());
            make_cluster(&directory.path().join("data"));
            if let Some(tls) = &options.tls {
                use_tls(&directory, tls);
            }
            let child = Mutex::new(run(options, port, &directory));
            let server = Self { options: options.clone(), port, directory, child };
            if server.comes_up() {
                return server;
            }
            log = server.log();
        }
        panic!("postgres ended {STARTS} times when it was started; the last time it said:\n{log}");
    }

    /// Starts a server that follows this one and takes no writes. This one needs `wal_level=replica` and `max_wal_senders`.
    #[must_use]
    pub fn standby(&self) -> Self {
        let (port, directory) = (free_port(), Directory::new());
        own(directory.path());
        let data = directory.path().join("data").display().to_string();
        let from = self.port.to_string();
        let server = ["-h", "127.0.0.1", "-p", &from, "-U", USER, "-D", &data];
        make("pg_basebackup", &[&server[..], &["-X", "stream", "-R", "-N", "-c", "fast"]].concat());
        let child = Mutex::new(run(&self.options, port, &directory));
        let server = Self { options: self.options.clone(), port, directory, child };
        assert!(server.comes_up(), "the standby did not come up; it said:\n{}", server.log());
        server
    }

    /// Where it is: `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    /// Where it is.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether its process is there.
    pub fn is_running(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// Ends it as a crash would: nothing is finished, nothing is flushed.
    pub fn crash(&self) {
        let mut child = self.child.lock().unwrap();
        signal(child.id(), "QUIT");
        child.wait().unwrap();
    }

    /// Crashes it, if it runs, and starts it again on the same port with the same directory.
    pub fn restart(&self) {
        if self.is_running() {
            self.crash();
        }
        *self.child.lock().unwrap() = run(&self.options, self.port, &self.directory);
        assert!(self.comes_up(), "postgres did not come up again; it said:\n{}", self.log());
    }

    /// Ends every connection of the stores, or those that match a condition on `pg_stat_activity`.
    pub fn terminate(&self, condition: &str) -> usize {
        let ended = self.psql(&format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE application_name = 'solvegate' AND {condition}"
        ));
        ended.parse().unwrap()
    }

    /// What a statement gives, one row a line, columns separated by `|`. Panics when it fails.
    #[track_caller]
    pub fn psql(&self, statement: &str) -> String {
        self.ask(statement).unwrap_or_else(|said| panic!("{statement} failed: {said}"))
    }

    fn ask(&self, statement: &str) -> Result<String, String> {
        let mut psql = clean_command("timeout");
        let port = self.port.to_string();
        // Names of the server's certificate are none of its business.
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

    /// Whether it answers; not so when its process ended. Another server may answer on this port, so it is asked who it is.
    fn comes_up(&self) -> bool {
        let data = self.directory.path().join("data").display().to_string();
        let mut up = false;
        wait_for("postgres answers or ends", || {
            up = self.ask("SHOW data_directory").is_ok_and(|said| said == data);
            up || !self.is_running()
        });
        up
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Its children end with it only when it is asked to end.
        if self.is_running() {
            self.crash();
        }
    }
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(sent.unwrap().success(), "the server {pid} is not there to get SIG{name}");
}

/// The data directory of a new server.
fn make_cluster(data: &Path) {
    let data = data.display().to_string();
    make("initdb", &["-A", "trust", "-N", "-U", USER, "-E", "UTF8", "--locale=C", "-D", &data]);
}

/// Runs a program that makes a directory.
fn make(name: &str, args: &[&str]) {
    let mut words = as_user();
    words.push(program(name).display().to_string());
    let mut command = clean_command(&words[0]);
    let made = command.args(&words[1..]).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(made.status.success(), "{name} failed: {}", String::from_utf8_lossy(&made.stderr));
}

/// Puts a certificate and its key where the server finds them, and closes the door to whoever comes without TLS.
fn use_tls(directory: &Directory, (certificate, key): &(String, String)) {
    let data = directory.path().join("data");
    fs::write(data.join("server.crt"), certificate).unwrap();
    fs::write(data.join("server.key"), key).unwrap();
    fs::set_permissions(data.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust\n").unwrap();
    own(directory.path());
}

/// A server that keeps nothing cleans up nothing either: a schema for each case is ten thousand tables to look at.
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
    /// Starts one before a server, in transaction mode and with few connections to it, used in turn.
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
            own(directory.path());
            let program = program("pgbouncer").display().to_string();
            let args = [ini.display().to_string()];
            let child = spawn_as(user(), &program, &args, &directory.path().join(LOG));
            let bouncer = Self { port, child: Mutex::new(child), _directory: directory };
            if bouncer.comes_up() {
                return bouncer;
            }
        }
        panic!("pgbouncer ended {STARTS} times when it was started");
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    fn comes_up(&self) -> bool {
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

/// The URL of a store behind a pooler or proxy. Notifications need a session of their own, so they go to the server itself.
pub fn through_pooler(url: &str, server: &PostgresServer) -> String {
    let direct = server.url().replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    format!("{url}?listen={direct}")
}

// === programs and users ===

/// Whom to become: root may not run a server.
fn user() -> Option<&'static str> {
    let output = Command::new("id").arg("-u").output().unwrap();
    (output.stdout == b"0\n").then_some(USER)
}

/// What a command begins with to be run by whom it has to.
fn as_user() -> Vec<String> {
    let words: &[&str] = if user().is_some() { &["runuser", "-u", USER, "--"] } else { &["env"] };
    words.iter().map(ToString::to_string).collect()
}

/// Gives a directory to who runs the server.
fn own(directory: &Path) {
    if let Some(user) = user() {
        let given = Command::new("chown").args(["-R", user]).arg(directory).status();
        assert!(given.unwrap().success(), "{} cannot be given to {user}", directory.display());
    }
}

/// Where a program is: on the path, where PostgreSQL says its programs are, or where Debian puts them.
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
