//! A measured server as the bench sees it: a child process that takes commands line by line on stdin.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::de::DeserializeOwned;
use solvegate::exit::{Exit, Failure};

use crate::{
    server::{Hello, STORE, ServerArgs},
    vitals::Vitals,
};

/// A server in its own process, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    hello: Hello,
}

/// Whether the server writes its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// Warnings only, to our stderr.
    Quiet,
    /// A line per request, as `serve` writes it, discarded.
    Requests,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start(args: &ServerArgs, log: Log) -> Result<Self, Failure> {
        let (filter, stderr) = match log {
            Log::Quiet => ("warn", Stdio::inherit()),
            Log::Requests => ("info", Stdio::null()),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.env_remove(STORE);
        if let Some(store) = args.store() {
            command.env(STORE, store);
        }
        let mut process = command
            .args(["--log", filter, "server"])
            .args(args.as_typed())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()?;
        let asks = process.stdin.take();
        let stdout = process.stdout.take().expect("piped just above");
        let mut answers = BufReader::new(stdout);
        let hello = read(&mut answers)?;
        Ok(Self { process, asks, answers, hello })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.hello.address
    }

    /// The key of its only worker.
    pub(crate) fn key(&self) -> &str {
        &self.hello.key
    }

    pub(crate) fn vitals(&mut self) -> Result<Vitals, Failure> {
        self.command("vitals")
    }

    /// Brings this many solves in flight and returns the vitals then.
    pub(crate) fn hold_solves(&mut self, count: usize) -> Result<Vitals, Failure> {
        self.command(&format!("solves {count}"))
    }

    fn command(&mut self, what: &str) -> Result<Vitals, Failure> {
        let asks = self.asks.as_mut().expect("taken away only when dropped");
        writeln!(asks, "{what}")?;
        read(&mut self.answers)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.asks = None;
        if let Err(error) = self.process.wait() {
            tracing::warn!(%error, "a measured server was not seen to end");
        }
    }
}

fn read<T: DeserializeOwned>(answers: &mut BufReader<ChildStdout>) -> Result<T, Failure> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    let ended = "a measured server ended early; its own message is above";
    serde_json::from_str(&line).map_err(|_| Failure::new(Exit::Failed, ended))
}
