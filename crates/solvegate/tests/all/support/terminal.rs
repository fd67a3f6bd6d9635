//! A command whose stderr is a terminal, as it is for a person.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::Read as _,
    os::unix::ffi::OsStrExt as _,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// A running command with all that it has shown so far.
pub(crate) struct OnTerminal {
    child: Child,
    shown: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    pub(crate) fn start(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = OpenOptions::new()
            .read(true)
            .write(true)
            .open(OsStr::from_bytes(name.as_bytes()))
            .unwrap();
        command.env("TERM", "xterm").stdout(Stdio::null()).stderr(theirs);
        let child = command.spawn().unwrap();
        // Its copy of the terminal would keep the reader waiting.
        drop(command);
        let shown = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&shown);
        let reader = thread::spawn(move || read(File::from(ours), &into));
        Self { child, shown, reader: Some(reader) }
    }

    pub(crate) fn text(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits for the end; the exit code and all that was shown.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (status.code(), self.text())
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // The process may have ended already.
        if self.child.kill().is_ok() {
            self.child.wait().unwrap();
        }
    }
}

/// Reads until the other side is closed, which on Linux is an error.
fn read(mut terminal: File, into: &Mutex<String>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = terminal.read(&mut bytes) {
        into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}
