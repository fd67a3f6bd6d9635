//! The binary under test as a child process, with its output.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// A running child process, killed when dropped.
pub(crate) struct Process {
    child: Mutex<Child>,
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
}

/// The result of a finished child process.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

#[derive(Default)]
struct Lines {
    text: Mutex<(String, bool)>,
    more: Condvar,
}

/// A program in its own directory. From our environment it gets `PATH` only: no keys, stores, proxies, languages or
/// home of the user who runs the tests.
pub(crate) fn program(dir: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env_clear().env("HOME", dir).env("TMPDIR", dir).stdin(Stdio::null());
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// The binary under test.
pub(crate) fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = program(dir, env!("CARGO_BIN_EXE_solvegate"));
    command.args(args);
    command
}

pub(crate) fn run(dir: &Path, args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = command(dir, args);
    command.envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Output { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

// === impl Process ===

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child: Mutex::new(child), stdout, stderr }
    }

    /// Waits for a line on stdout and returns the part after `start`; `None` when the output ends without one.
    pub(crate) fn try_line_after(&self, start: &str) -> Option<String> {
        self.stdout.wait(|text| {
            let line = text.lines().find(|line| line.contains(start))?;
            Some(line.split_once(start)?.1.trim().to_owned())
        })
    }

    /// Waits for a line on stdout and returns the part after `start`.
    pub(crate) fn line_after(&self, start: &str) -> String {
        if let Some(found) = self.try_line_after(start) {
            return found;
        }
        // The process ended or hangs. If it ended, the reason is on stderr and may not have arrived yet.
        self.stderr.wait(|_| None::<()>);
        let ended = self.child.lock().unwrap().try_wait().unwrap();
        let (stdout, stderr) = (self.stdout(), self.stderr());
        panic!("no line with {start:?}\nended: {ended:?}\nstdout: {stdout}\nstderr: {stderr}")
    }

    /// The key that this first start made: the line that begins with `title` names its file, relative to `dir`.
    pub(crate) fn key_in_file(&self, dir: &Path, title: &str) -> String {
        read_key(dir, &self.line_after(title))
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text.lock().unwrap().0.clone()
    }

    /// All of it, once the process has ended.
    pub(crate) fn whole_stdout(&self) -> String {
        self.stdout.wait(|_| None::<()>);
        self.stdout()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text.lock().unwrap().0.clone()
    }

    /// A size in `/proc/PID/status`, in bytes: `VmRSS` is the memory in use, `VmHWM` its peak.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.lock().unwrap().id());
        let status = std::fs::read_to_string(path).unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib: u64 = value.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        kib * 1024
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.lock().unwrap()), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = now() + PATIENCE;
        loop {
            let status = self.child.lock().unwrap().try_wait().unwrap();
            if let Some(status) = status {
                // What it wrote last may arrive after its end.
                self.stdout.wait(|_| None::<()>);
                self.stderr.wait(|_| None::<()>);
                return status;
            }
            assert!(now() < end, "still running after {PATIENCE:?}\nstderr: {}", self.stderr());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if child.kill().is_ok() {
            child.wait().unwrap();
        }
        if thread::panicking() {
            eprintln!("--- stderr of {}\n{}", child.id(), self.stderr());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
fn now() -> Instant {
    Instant::now()
}

// === impl Lines ===

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Arc<Self> {
        let lines = Arc::new(Self::default());
        let writer = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let mut text = writer.text.lock().unwrap();
                text.0.push_str(&String::from_utf8_lossy(&line));
                text.0.push('\n');
                writer.more.notify_all();
            }
            writer.text.lock().unwrap().1 = true;
            writer.more.notify_all();
        });
        lines
    }

    /// Waits until `find` returns something, or for the end of the stream.
    fn wait<T>(&self, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        let end = now() + PATIENCE;
        let mut text = self.text.lock().unwrap();
        loop {
            let found = find(&text.0);
            let left = end.saturating_duration_since(now());
            if found.is_some() || text.1 || left.is_zero() {
                return found;
            }
            text = self.more.wait_timeout(text, left).unwrap().0;
        }
    }
}

/// The key in the file that a line such as `in FILE   (new; …)` names.
pub(crate) fn read_key(dir: &Path, line: &str) -> String {
    let path = line.trim().strip_prefix("in ").and_then(|rest| rest.split_once("   (new"));
    let (path, _) = path.unwrap_or_else(|| panic!("no file of a key: {line}"));
    std::fs::read_to_string(dir.join(path)).unwrap()
}
