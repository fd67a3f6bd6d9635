//! Shared by all private servers: a process that ends with the test, a free port, a directory, and waiting with a limit.

use std::{
    env,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

/// Below the ephemeral port range, also for the cluster bus, which is 10000 above.
const PORTS: Range<u16> = 11_000..21_000;
const BUS: u16 = 10_000;

const STEP: Duration = Duration::from_millis(20);
/// Generous, because the machine may be busy. A healthy server needs a fraction of it.
const PATIENCE: Duration = Duration::from_secs(30);

const PREFIX: &str = "solvegate-test-";

/// The directory of one server, removed with it.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

/// A command to run, and the channel for its process.
type SpawnRequest = (Command, Sender<io::Result<Child>>);

/// Waits until the condition holds, and panics after `PATIENCE`.
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if is_so() {
            return;
        }
        thread::sleep(STEP);
    }
    panic!("this did not happen within {PATIENCE:?}: {what}");
}

/// Runs a program that the kernel kills when this process ends, even by SIGKILL. Its output is appended to a file.
pub(super) fn spawn(program: &str, args: &[String], log: &Path) -> Child {
    spawn_as(None, program, args, log)
}

/// Like [`spawn`], as another user.
pub(super) fn spawn_as(user: Option<&str>, program: &str, args: &[String], log: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let mut command = clean_command("setpriv");
    if let Some(user) = user {
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    }
    command.args(["--pdeathsig", "KILL", program]).args(args);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let (reply, child) = channel();
    spawner().send((command, reply)).expect("the spawner lives as long as the process");
    child
        .recv()
        .expect("the spawner answers every request")
        .unwrap_or_else(|why| panic!("setpriv (of util-linux) cannot be run: {why}; install it"))
}

/// A command without the environment of the test run: `PG*`, `AWS_*` and `REDISCLI_AUTH` would change its behaviour.
pub(super) fn clean_command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command.envs(env::vars_os().filter(|(name, _)| name == "PATH" || name == "TMPDIR"));
    command.env("LC_ALL", "C");
    command
}

/// The thread that starts all children. The kernel kills a child when the *thread* that started it ends, and the threads
/// of tests and runtimes end long before the process.
fn spawner() -> &'static Sender<SpawnRequest> {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (requests, inbox): (_, Receiver<SpawnRequest>) = channel();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                reply.send(command.spawn()).ok();
            }
        });
        requests
    })
}

/// A port that is free, together with that of its cluster bus. Another process may still take it first.
pub fn free_port() -> u16 {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let width = u64::from(PORTS.end - PORTS.start);
    (0..1000)
        .map(|_| {
            let chance = RandomState::new().hash_one(()) % width;
            PORTS.start + u16::try_from(chance).expect("the range is one of ports")
        })
        .find(|&port| free(port) && free(port + BUS))
        .expect("some port between 11000 and 21000 is free")
}

// === impl Directory ===

impl Directory {
    /// A new directory. Its name contains our process id.
    pub(super) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        remove_leftovers(&env::temp_dir());
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("{PREFIX}{}-{number}", process::id()));
        // An earlier process may have had our process id.
        fs::remove_dir_all(&path).ok();
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Statics and killed tests run no destructors, so the next test removes the directories of processes that are gone.
fn remove_leftovers(temp: &Path) {
    for entry in fs::read_dir(temp).unwrap().filter_map(Result::ok) {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}
