//! The binary under test as a child process: its lines as they come, and its end by its own pid.

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

/// A running child. Ended when dropped.
pub(crate) struct Process {
    child: Mutex<Child>,
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
}

/// How a child that was waited for ended.
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

/// A program in a directory of its own. Of our environment it gets the path to other programs and nothing else: neither
/// keys, stores, proxies and languages of whoever runs the tests, nor their home.
pub(crate) fn program(dir: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env_clear().env("HOME", dir).stdin(Stdio::null());
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// The binary under test.
pub(crate) fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = program(dir, env!("CARGO_BIN_EXE_solvegate"));
    command.args(args);
    command
}

/// Runs the binary to its end.
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

    /// Waits for a line on stdout and returns what follows `start` in it; `None` when it ends without.
    pub(crate) fn try_line_after(&self, start: &str) -> Option<String> {
        self.stdout.wait(|text| {
            let line = text.lines().find(|line| line.contains(start))?;
            Some(line.split_once(start)?.1.trim().to_owned())
        })
    }

    /// Waits for a line on stdout and returns what follows `start` in it.
    pub(crate) fn line_after(&self, start: &str) -> String {
        if let Some(found) = self.try_line_after(start) {
            return found;
        }
        // It ended, or hangs: if it ended, the reason is on stderr and may still be on its way here.
        self.stderr.wait(|_| None::<()>);
        let ended = self.child.lock().unwrap().try_wait().unwrap();
        let (stdout, stderr) = (self.stdout(), self.stderr());
        panic!("no line with {start:?}\nended: {ended:?}\nstdout: {stdout}\nstderr: {stderr}")
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text.lock().unwrap().0.clone()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text.lock().unwrap().0.clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.lock().unwrap()), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = now() + PATIENCE;
        loop {
            if let Some(status) = self.child.lock().unwrap().try_wait().unwrap() {
                return status;
            }
            assert!(now() < end, "still running after {PATIENCE:?}\nstderr: {}", self.stderr());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to do.
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

    /// Waits for what is looked for, or for the end of the stream.
    fn wait<T>(&self, look: impl Fn(&str) -> Option<T>) -> Option<T> {
        let end = now() + PATIENCE;
        let mut text = self.text.lock().unwrap();
        loop {
            let found = look(&text.0);
            let left = end.saturating_duration_since(now());
            if found.is_some() || text.1 || left.is_zero() {
                return found;
            }
            text = self.more.wait_timeout(text, left).unwrap().0;
        }
    }
}
