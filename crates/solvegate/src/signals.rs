//! Signals: SIGTERM and SIGINT drain and stop the process, SIGHUP reloads the configuration.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    Stop,
    Reload,
}

// === impl Signals ===

impl Signals {
    /// Installs the signal handlers.
    pub fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::of(Exit::Failed));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) -> SignalAction {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }

    /// Returns at the first signal to stop.
    pub async fn stop(&mut self) {
        while self.next().await != SignalAction::Stop {}
    }
}
