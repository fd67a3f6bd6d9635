//! The simulated provider as a process of its own: its ledger is the judge of what was paid.

use std::path::Path;

use domain::secret::Secret;
use serde_json::{Value, json};
use simulator::Ledger;
use solvegate::client::{Call, Remote};

use super::{
    ports::ClosedPort,
    process::{Process, command},
};

/// A running simulator, or nobody.
pub(crate) struct Sim {
    pub(crate) url: String,
    remote: Remote,
    _there: There,
}

/// What is there as long as it is wanted.
enum There {
    Simulator { _process: Process },
    Nobody { _port: ClosedPort },
}

impl Sim {
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        let mut all = vec!["sim", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let process = Process::start(command(dir, &all));
        let said = process.line_after("simulator at ");
        let url = said.split(' ').next().unwrap().to_owned();
        let remote = Remote::new(&url, Secret::new("none"), None).unwrap();
        Self { url, remote, _there: There::Simulator { _process: process } }
    }

    /// An address nobody listens on.
    pub(crate) fn nowhere() -> Self {
        let port = ClosedPort::hold();
        let url = format!("http://127.0.0.1:{}", port.port());
        let remote = Remote::new(&url, Secret::new("none"), None).unwrap();
        Self { url, remote, _there: There::Nobody { _port: port } }
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
