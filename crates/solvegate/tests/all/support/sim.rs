//! The simulated provider as a separate process, whose ledger shows what was paid.

use std::path::Path;

use domain::secret::Secret;
use serde_json::{Value, json};
use simulator::Ledger;
use solvegate::client::{Call, Remote};

use super::{
    PROVIDER,
    ports::ClosedPort,
    process::{Process, command},
};

/// A running simulator, or a closed port in its place.
pub(crate) struct Sim {
    pub(crate) url: String,
    remote: Remote,
    _process_or_port: ProcessOrPort,
}

/// Kept alive as long as the `Sim`.
enum ProcessOrPort {
    Simulator { _process: Process },
    ClosedPort { _port: ClosedPort },
}

impl Sim {
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        let mut all = vec!["sim", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let process = Process::start(command(dir, &all));
        let said = process.line_after("simulator at ");
        let url = said.split(' ').next().unwrap().to_owned();
        let remote = Remote::new(&url, Secret::new("none"), None).unwrap();
        Self { url, remote, _process_or_port: ProcessOrPort::Simulator { _process: process } }
    }

    /// An address that refuses connections.
    pub(crate) fn nowhere() -> Self {
        let port = ClosedPort::hold();
        let url = format!("http://127.0.0.1:{}", port.port());
        let remote = Remote::new(&url, Secret::new("none"), None).unwrap();
        Self { url, remote, _process_or_port: ProcessOrPort::ClosedPort { _port: port } }
    }

    pub(crate) async fn ledger(&self) -> Ledger {
        let reply = self.remote.send(&Call::get("/ledger")).await.unwrap();
        serde_json::from_value(reply.body).unwrap()
    }

    /// The number of tasks it charged for.
    pub(crate) async fn charges(&self) -> usize {
        self.ledger().await.accepted.len()
    }

    /// Buys a task with the account's key, behind the gateway's back.
    pub(crate) async fn buy(&self, query: &str) {
        let path = format!("/in.php?key={PROVIDER}&json=1&{query}");
        let reply = self.remote.send(&Call::get(path)).await.unwrap();
        assert_eq!(reply.body["status"], 1, "{}", reply.body);
    }

    /// Changes what tasks cost from now on.
    pub(crate) async fn set_prices(&self, prices: Value) {
        let reply = self.remote.send(&Call::post("/prices", prices)).await.unwrap();
        assert!(reply.status.is_success(), "{}", reply.body);
    }

    /// Clears the planned faults.
    pub(crate) async fn heal(&self) {
        let reply = self.remote.send(&Call::delete("/faults")).await.unwrap();
        assert!(reply.status.is_success(), "{}", reply.body);
    }

    /// Plans a fault; `simulator::faults` documents the format.
    pub(crate) async fn fault(&self, planned: Value) {
        let reply = self.remote.send(&Call::post("/faults", planned)).await.unwrap();
        assert!(reply.status.is_success(), "{}", reply.body);
    }

    pub(crate) async fn clear_faults(&self) {
        let reply = self.remote.send(&Call::delete("/faults")).await.unwrap();
        assert!(reply.status.is_success(), "{}", reply.body);
    }

    /// Plans a fault of the next submission.
    pub(crate) async fn fault_submit(&self, fault: Value, accepted: bool) {
        self.fault(json!({ "on": "submit", "fault": fault, "accepted": accepted })).await;
    }
}
