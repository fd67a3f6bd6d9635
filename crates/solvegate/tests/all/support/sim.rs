//! The simulated provider as a process of its own: its ledger is the judge of what was paid.

use std::path::Path;

use domain::secret::Secret;
use serde_json::{Value, json};
use simulator::Ledger;
use solvegate::client::{Call, Remote};

use super::process::{Process, command};

/// A running simulator.
pub(crate) struct Sim {
    pub(crate) url: String,
    remote: Remote,
    /// Ends when dropped; `None` when there never was one.
    _process: Option<Process>,
}

impl Sim {
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        let mut all = vec!["sim", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let process = Process::start(command(dir, &all));
        let said = process.line_after("simulator at ");
        let url = said.split(' ').next().unwrap().to_owned();
        let remote = Remote::new(&url, Secret::new("none"), None).unwrap();
        Self { url, remote, _process: Some(process) }
    }

    /// An address nobody listens on.
    pub(crate) fn nowhere(port: u16) -> Self {
        let url = format!("http://127.0.0.1:{port}");
        let remote = Remote::new(&url, Secret::new("none"), None).unwrap();
        Self { url, remote, _process: None }
    }

    /// Its account of everything.
    pub(crate) async fn ledger(&self) -> Ledger {
        let reply = self.remote.send(&Call::get("/ledger")).await.unwrap();
        serde_json::from_value(reply.body).unwrap()
    }

    /// How many tasks it charged for.
    pub(crate) async fn charges(&self) -> usize {
        self.ledger().await.accepted.len()
    }

    /// Plans a fault; see `simulator::faults` for the words.
    pub(crate) async fn fault(&self, planned: Value) {
        let reply = self.remote.send(&Call::post("/faults", planned)).await.unwrap();
        assert!(reply.status.is_success(), "{}", reply.body);
    }

    /// The next submission goes wrong in this way.
    pub(crate) async fn fault_submit(&self, fault: Value, accepted: bool) {
        self.fault(json!({ "on": "submit", "fault": fault, "accepted": accepted })).await;
    }
}
