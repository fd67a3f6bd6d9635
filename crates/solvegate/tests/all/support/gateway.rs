//! The gateway as a separate process, with a configuration file in a new directory.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use domain::secret::Secret;
use rustix::process::Signal;
use serde_json::Value;
use solvegate::client::{Call, Remote, Reply};

use super::{
    Sim, eventually,
    process::{Process, command},
};

/// The first worker's key.
pub(crate) const WORKER: &str = "canary-worker-one-78901234567890";
/// The second worker's key.
pub(crate) const WORKER_TWO: &str = "canary-worker-two-78901234567890";
/// The admin's key.
pub(crate) const ADMIN: &str = "canary-admin-key-678901234567890";
/// The certificate of a gateway with TLS, in its directory.
pub(crate) const CERTIFICATE: &str = "data/tls-cert.pem";
/// The account's key at the provider.
pub(crate) const PROVIDER: &str = "canary-provider-8901234567890123";

/// What a gateway prints before its address.
const LISTENS: &str = "is listening on ";

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `listen`.
    pub(crate) listen: String,
    /// `[store] url`.
    pub(crate) store: String,
    /// More of `[store]`.
    pub(crate) store_more: String,
    /// More of `[upstream]`.
    pub(crate) upstream: String,
    /// At the top of the file.
    pub(crate) top: String,
    /// At the end of the file: further sections.
    pub(crate) more: String,
    /// `[upstream] slots`, as it is written.
    pub(crate) slots: &'static str,
    /// `[polling]` first and interval, in milliseconds.
    pub(crate) poll_ms: u32,
    /// `--log`.
    pub(crate) log: &'static str,
    /// `--tls-self-signed`.
    pub(crate) tls: bool,
    /// Variables of its environment.
    pub(crate) environment: Vec<(String, String)>,
    /// A last change of the file.
    pub(crate) edit: fn(&str) -> String,
}

pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) base: String,
    worker: Remote,
    worker_two: Remote,
    admin: Remote,
}

/// Sums over the days since this was created, because a test that runs at midnight has two.
pub(crate) struct Days<'g> {
    gateway: &'g Gateway,
    first: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            store: "embedded:data".into(),
            store_more: String::new(),
            upstream: String::new(),
            top: String::new(),
            more: String::new(),
            slots: "1000",
            poll_ms: 200,
            log: "info",
            tls: false,
            environment: Vec::new(),
            edit: str::to_owned,
        }
    }
}

// === impl Settings ===

impl Settings {
    /// The configuration file.
    pub(crate) fn file(&self, sim: &Sim) -> String {
        let Self { listen, store, store_more, upstream, top, more, slots, poll_ms, .. } = self;
        let url = &sim.url;
        format!(
            r#"
            listen = "{listen}"
            {top}
            [upstream]
            url = "{url}"
            key = "{PROVIDER}"
            slots = {slots}
            submits_per_second = 1000
            {upstream}
            [store]
            url = "{store}"
            {store_more}
            [admin]
            key = "{ADMIN}"
            [[worker]]
            name = "one"
            key = "{WORKER}"
            project = "checkout"
            # Tests under load have one worker with hundreds of claims, on gateways that are killed and counted for a while.
            queue = 10000
            poll_rate = "100000/s"
            read_rate = "10000/s"
            [[worker]]
            name = "two"
            key = "{WORKER_TWO}"
            [[site]]
            host = "shop.example.com"
            basis = "own shop, tests"
            [[site]]
            host = "careful.example.com"
            basis = "own shop, tests"
            ambiguous = "never"
            [[site]]
            host = "over.example.com"
            basis = "ended"
            expires = "2020-01-01"
            [[site]]
            host = "*.corp.example.org"
            basis = "tests"
            [[site]]
            host = "xn--bcher-kva.example"
            basis = "tests"
            [[site]]
            host = "api.example.net:8443"
            basis = "tests"
            [images]
            basis = "own forms, tests"
            [polling]
            mode = "fixed"
            first = "{poll_ms}ms"
            interval = "{poll_ms}ms"
            min_gap = "100ms"
            {more}
            "#
        )
    }
}

// === impl Gateway ===

impl Gateway {
    /// With default settings.
    pub(crate) fn start(dir: &Path, sim: &Sim) -> Self {
        Self::with(dir, sim, &Settings::default())
    }

    /// Starts it in `dir`, with the data of an earlier gateway there.
    pub(crate) fn with(dir: &Path, sim: &Sim, settings: &Settings) -> Self {
        let process = launch(dir, sim, settings);
        let base = process.line_after(LISTENS);
        Self::at(base, process, dir, settings)
    }

    /// The same; an error is the log of a gateway that ended at once, as it does without its store.
    pub(crate) fn try_with(dir: &Path, sim: &Sim, settings: &Settings) -> Result<Self, String> {
        let mut process = launch(dir, sim, settings);
        if let Some(base) = process.try_line_after(LISTENS) {
            return Ok(Self::at(base, process, dir, settings));
        }
        process.wait();
        Err(process.stderr())
    }

    fn at(base: String, process: Process, dir: &Path, settings: &Settings) -> Self {
        let certificate = settings.tls.then(|| dir.join(CERTIFICATE));
        let remote =
            |key: &str| Remote::new(&base, Secret::new(key), certificate.as_deref()).unwrap();
        let (worker, worker_two) = (remote(WORKER), remote(WORKER_TWO));
        Self { worker, worker_two, admin: remote(ADMIN), process, base }
    }

    /// As worker one.
    pub(crate) async fn send(&self, call: &Call) -> Reply {
        self.worker.send(call).await.unwrap()
    }

    /// As worker one; `None` when the gateway is gone.
    pub(crate) async fn try_send(&self, call: &Call) -> Option<Reply> {
        self.worker.send(call).await.ok()
    }

    pub(crate) async fn send_as_two(&self, call: &Call) -> Reply {
        self.worker_two.send(call).await.unwrap()
    }

    pub(crate) async fn send_as_admin(&self, call: &Call) -> Reply {
        self.admin.send(call).await.unwrap()
    }

    /// Changes the configuration file in `dir` and waits for the reload. The log has to show `info`.
    pub(crate) async fn reload(&self, dir: &Path, change: impl Fn(String) -> String) {
        let file = dir.join("solvegate.toml");
        fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
        let reloads = || self.process.stderr().matches("configuration reloaded").count();
        let before = reloads();
        self.process.signal(Signal::HUP);
        eventually("the reload", async || (reloads() > before).then_some(())).await;
    }

    /// Claims and waits for the end.
    pub(crate) async fn solve(&self, body: Value, key: Option<&str>) -> Reply {
        let mut call = Call::post("/v1/solves", body)
            .header("prefer", "wait=60")
            .waiting(Duration::from_secs(60));
        if let Some(key) = key {
            call = call.header("idempotency-key", key);
        }
        self.send(&call).await
    }

    /// Starts with today, by the gateway's clock.
    pub(crate) async fn days(&self) -> Days<'_> {
        let first = date(&self.stats("").await);
        Days { gateway: self, first }
    }

    async fn stats(&self, query: &str) -> Value {
        self.send_as_admin(&Call::get(format!("/v1/stats{query}"))).await.good().unwrap()
    }

    /// The ledger entries of a claim.
    pub(crate) async fn story(&self, id: &str) -> Vec<Value> {
        let reply = self.send(&Call::get(format!("/v1/solves/{id}/explain"))).await;
        assert!(reply.status.is_success(), "{}", reply.body);
        reply.body["entries"].as_array().unwrap().clone()
    }
}

/// Starts the process.
fn launch(dir: &Path, sim: &Sim, settings: &Settings) -> Process {
    write_private(&dir.join("solvegate.toml"), &(settings.edit)(&settings.file(sim)));
    let mut args = vec!["serve", "--log", settings.log];
    args.extend(settings.tls.then_some("--tls-self-signed"));
    let mut command = command(dir, &args);
    command.envs(settings.environment.iter().cloned());
    Process::start(command)
}

// === impl Days ===

impl Days<'_> {
    /// One of the counts of `/v1/stats`, summed over the days.
    pub(crate) async fn sum(&self, count: &str) -> u64 {
        let of =
            |stats: &Value| stats["counts"][count].as_u64().unwrap_or_else(|| panic!("{stats}"));
        let first = self.gateway.stats(&format!("?date={}", self.first)).await;
        let last = self.gateway.stats("").await;
        if date(&last) == self.first { of(&first) } else { of(&first) + of(&last) }
    }
}

fn date(stats: &Value) -> String {
    stats["date"].as_str().unwrap_or_else(|| panic!("{stats}")).to_owned()
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
