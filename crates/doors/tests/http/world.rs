//! A gateway on a free loopback port: real sockets, the real engine, the memory store and the simulated provider.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    actor::AdminRole,
    challenge::Kind,
    claim::Allowance,
    declarations::{Declarations, Images, KnownWorkers, WorkerScope},
    id::{Project, WorkerName},
    ports::{Chance, Clock, NoWebhooks, Store, WebhookSender},
    secret::Secret,
    site::{HostRule, Site},
    token::TokenLifetime,
};
use doors::{
    Admin, Admins, Doors, DoorsConfig, KeyDigest, Limits, ServeConfig, TlsMaterial, Worker, Workers,
};
use engine::{Engine, EngineConfig, FixedPolling, Ports, Slots};
use simulator::{Account, BehaviourConfig, Latency, SimProvider, clock::VirtualClock};
use stores::{LocalNotifier, StoreAdapter};
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep},
};
use upstream::{WebhookClient, WebhookConfig};

use crate::{
    client::{Answer, PATIENCE, send},
    faulty::FaultyStore,
};

pub(crate) const WORKER: &str = "aWorkersKeyOf32Characters0000001";
pub(crate) const OTHER: &str = "aWorkersKeyOf32Characters0000002";
pub(crate) const NARROW: &str = "aWorkersKeyOf32Characters0000003";
/// Signs the addresses of pingbacks.
pub(crate) const PINGBACK: &str = "a secret of the tests, kept well";
pub(crate) const ADMIN: &str = "theAdminsKeyOf32Characters000001";
pub(crate) const OPERATOR: &str = "theAdminsKeyOf32Characters000002";
pub(crate) const READER: &str = "theAdminsKeyOf32Characters000003";

/// Every world starts at noon, so that no test crosses midnight.
const HALF_A_DAY: Duration = Duration::from_secs(12 * 60 * 60);

/// The options of a world.
pub(crate) struct Setting {
    pub(crate) solving: Duration,
    pub(crate) hold: Duration,
    pub(crate) limits: Limits,
    pub(crate) allowance: Allowance,
    pub(crate) rate: Option<&'static str>,
    pub(crate) poll_rate: Option<&'static str>,
    pub(crate) read_rate: Option<&'static str>,
    /// The most waiting solves of the first worker.
    pub(crate) queue: Option<usize>,
    pub(crate) tls: Option<TlsMaterial>,
    pub(crate) priced: bool,
    /// How long a Turnstile token lives.
    pub(crate) lifetime: Option<Duration>,
    pub(crate) slots: usize,
    /// The default deadline of a claim.
    pub(crate) deadline: Duration,
    /// Private hosts that may be called back; without any there are no callbacks at all.
    pub(crate) callback_hosts: Option<Vec<String>>,
    /// Whether the provider may send pingbacks.
    pub(crate) pingback: bool,
    /// When tasks are polled, if no pingback comes.
    pub(crate) poll_after: Duration,
}

/// A running gateway.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) account: Account,
    pub(crate) engine: Engine,
    pub(crate) doors: Doors,
    pub(crate) store: Arc<FaultyStore>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinSet<()>,
}

#[derive(Debug)]
struct Dice(Mutex<fastrand::Rng>);

impl Chance for Dice {
    fn draw(&self) -> u64 {
        self.0.lock().unwrap().u64(..)
    }
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            solving: Duration::from_millis(60),
            hold: Duration::from_secs(4),
            limits: Limits::default(),
            allowance: Allowance::default(),
            rate: None,
            poll_rate: None,
            read_rate: None,
            queue: None,
            tls: None,
            priced: true,
            lifetime: None,
            slots: 50,
            deadline: Duration::from_secs(180),
            callback_hosts: None,
            pingback: false,
            poll_after: Duration::from_millis(20),
        }
    }
}

impl World {
    /// A world with the default options.
    pub(crate) async fn open() -> Self {
        Self::with(Setting::default()).await
    }

    pub(crate) async fn with(setting: Setting) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(Instant::now(), HALF_A_DAY));
        let mut behaviour = BehaviourConfig::new(7).solving_in(setting.solving);
        behaviour.captchaai = !setting.priced;
        let account = Account::new(behaviour);
        let latency = Latency {
            least: Duration::ZERO,
            most: Duration::from_millis(2),
            deadline: Duration::from_secs(5),
        };
        let memory = Arc::new(StoreAdapter::in_memory());
        let store = Arc::new(FaultyStore::new(Arc::clone(&memory) as Arc<dyn Store>));
        let ports = Ports {
            store: Arc::clone(&store) as Arc<dyn Store>,
            records: memory,
            notifier: Arc::new(LocalNotifier::new()),
            provider: Arc::new(SimProvider::new(account.clone(), Arc::clone(&clock), latency)),
            webhooks: webhooks(&setting, &clock),
            clock,
            chance: Arc::new(Dice(Mutex::new(fastrand::Rng::with_seed(11)))),
        };
        let engine = Engine::start(ports, engine_config(&setting)).await.unwrap();
        let config = DoorsConfig {
            workers: Workers::new(workers(&setting)).unwrap(),
            admins: Admins::new(admins()).unwrap(),
            hold: setting.hold,
            limits: setting.limits,
            allowed_hosts: vec!["gate.example".to_owned()],
            currency: "USD".parse().ok(),
            pingback: setting.pingback.then(|| Secret::new(PINGBACK)),
        };
        let doors = Doors::new(engine.clone(), config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serve = ServeConfig { tls: setting.tls, limits: setting.limits };
        let mut serving = JoinSet::new();
        serving.spawn(doors::serve(listener, doors::router(&doors), serve, async {
            stopped.await.ok();
        }));
        Self { address, account, engine, doors, store, stop: Some(stop), serving }
    }

    /// Begins to stop and returns at once.
    pub(crate) fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until all connections are gone.
    pub(crate) async fn stopped(&mut self) {
        while self.serving.join_next().await.is_some() {}
    }

    /// Sends one request on a new connection.
    pub(crate) async fn send(&self, request: &str) -> Answer {
        send(self.address, request.as_bytes()).await
    }

    pub(crate) async fn get(&self, path: &str, key: &str) -> Answer {
        self.send(&request("GET", path, key, &[], "")).await
    }

    pub(crate) async fn post(&self, path: &str, key: &str, headers: &[&str], body: &str) -> Answer {
        let mut all = vec!["Content-Type: application/json"];
        all.extend(headers);
        self.send(&request("POST", path, key, &all, body)).await
    }

    pub(crate) async fn put(&self, path: &str, key: &str, body: &str) -> Answer {
        let json = ["Content-Type: application/json"];
        self.send(&request("PUT", path, key, &json, body)).await
    }

    pub(crate) async fn delete(&self, path: &str, key: &str) -> Answer {
        self.send(&request("DELETE", path, key, &[], "")).await
    }

    /// A claim on v1.
    pub(crate) async fn claim(&self, sitekey: &str, headers: &[&str]) -> Answer {
        self.post("/v1/solves", WORKER, headers, &turnstile(sitekey)).await
    }

    /// A request on the compat door.
    pub(crate) async fn php(&self, target: &str) -> Answer {
        self.send(&request("GET", target, "", &[], "")).await
    }

    /// Waits until the provider has accepted this many submissions.
    pub(crate) async fn until_paid(&self, count: usize) {
        until("submissions are taken", async || (self.paid() >= count).then_some(())).await;
    }

    /// The number of submissions the provider has accepted.
    pub(crate) fn paid(&self) -> usize {
        self.account.ledger().accepted.len()
    }
}

/// Checks again and again until there is a result; fails the test on timeout.
pub(crate) async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A body for a Turnstile claim.
pub(crate) fn turnstile(sitekey: &str) -> String {
    format!(
        r#"{{"kind":"turnstile","sitekey":"{sitekey}","pageurl":"https://shop.example.com/login"}}"#
    )
}

/// A whole request with a key, unless it is empty.
pub(crate) fn request(method: &str, path: &str, key: &str, headers: &[&str], body: &str) -> String {
    let mut head = vec![format!("{method} {path} HTTP/1.1"), "Host: localhost".to_owned()];
    if !key.is_empty() {
        head.push(format!("Authorization: Bearer {key}"));
    }
    head.extend(headers.iter().map(ToString::to_string));
    if !body.is_empty() || method == "POST" {
        head.push(format!("Content-Length: {}", body.len()));
    }
    format!("{}\r\n\r\n{body}", head.join("\r\n"))
}

/// The real sender, with a test secret.
fn webhooks(setting: &Setting, clock: &Arc<dyn Clock>) -> Arc<dyn WebhookSender> {
    let Some(hosts) = &setting.callback_hosts else { return Arc::new(NoWebhooks) };
    let secret = Secret::new("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3");
    let config = WebhookConfig { trusted: hosts.clone(), ..WebhookConfig::new(secret) };
    Arc::new(WebhookClient::new(config, Arc::clone(clock)).unwrap())
}

fn engine_config(setting: &Setting) -> EngineConfig {
    let rules =
        ["shop.example.com", "*.corp.example.org", "xn--bcher-kva.example", "api.example.net:8443"];
    let sites = rules.map(|rule| Site::new(rule.parse().unwrap(), "tests of the doors"));
    let rule: HostRule = "*.corp.example.org".parse().unwrap();
    let narrow = WorkerScope { sites: Some(Arc::new([rule])), images: false };
    let scopes = [("one", WorkerScope::FULL), ("two", WorkerScope::FULL), ("narrow", narrow)];
    let scopes = scopes.map(|(name, scope)| (WorkerName::new(name).unwrap(), scope));
    let declarations = Declarations {
        sites: sites.into(),
        images: Some(Images::all_kinds("tests of the doors")),
        workers: KnownWorkers::Listed(scopes.into()),
    };
    let polling = FixedPolling {
        first: setting.poll_after,
        interval: Duration::from_millis(20),
        min_gap: Duration::from_millis(10),
        most: 1000,
    };
    EngineConfig {
        declarations: Arc::new(declarations),
        polling: polling.into(),
        slots: Slots::Fixed(setting.slots),
        queue_limits: setting
            .queue
            .map(|queue| (WorkerName::new("one").unwrap(), queue))
            .into_iter()
            .collect(),
        deadline: setting.deadline,
        token_lifetimes: setting
            .lifetime
            .map(|life| (Kind::Turnstile, TokenLifetime::new(life, Duration::ZERO).unwrap()))
            .into_iter()
            .collect(),
        submits_per_second: 1000,
        drain_grace: Duration::from_secs(1),
        pingback: setting.pingback,
        ..EngineConfig::default()
    }
}

fn admins() -> Vec<Admin> {
    let admin = |name: &str, role, key: &str| Admin {
        name: WorkerName::new(name).unwrap(),
        role,
        keys: vec![KeyDigest::of(key).unwrap().into()],
    };
    vec![
        admin("admin", AdminRole::Admin, ADMIN),
        admin("olga", AdminRole::Operator, OPERATOR),
        admin("rita", AdminRole::Reader, READER),
    ]
}

fn workers(setting: &Setting) -> Vec<Worker> {
    let worker = |name: &str, key: &str| Worker {
        name: WorkerName::new(name).unwrap(),
        keys: vec![KeyDigest::of(key).unwrap().into()],
        project: Project::new("tests").unwrap(),
        projects: ["checkout", "other"].map(|name| Project::new(name).unwrap()).into(),
        priority: 1,
        allowance: setting.allowance,
        rate: setting.rate.map(|rate| rate.parse().unwrap()),
        poll_rate: setting.poll_rate.map(|rate| rate.parse().unwrap()),
        read_rate: setting.read_rate.map(|rate| rate.parse().unwrap()),
        balance: name != "narrow",
    };
    vec![worker("one", WORKER), worker("two", OTHER), worker("narrow", NARROW)]
}
