//! Signals: SIGTERM and SIGINT end the process gracefully, SIGHUP reloads.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// The signals a process listens for.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// End gracefully.
    Stop,
    /// Read the configuration again.
    Reload,
}

// === impl Signals ===

impl Signals {
    /// Listens from now on.
    pub fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::of(Exit::Failed));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next wish.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }

    /// Returns when the process is asked to end.
    pub async fn stop(mut self) {
        while self.next().await != Wish::Stop {}
    }
}
