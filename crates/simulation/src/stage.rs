//! The setup of single-scenario tests: one store, one recording provider, any number of gateways, virtual time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Allowance, Door},
    dead_letter::DeadLetterClass,
    declarations::Declarations,
    id::{AttemptName, ClaimId, Project, TaskId, WorkerName},
    ledger::{Entry, Event},
    money::Money,
    ports::{
        BatchRefused, Clock, DeadLetterFilter, Fault as Seen, Feedback, Notifier, Polled, Provider,
        Scope, Submission, Subscription, Threads, WebhookSender,
    },
    site::{PageUrl, Site},
    time::Timestamp,
};
use engine::{ClaimRequest, Engine, EngineConfig, FixedPolling, Outcome, Ports, ServerlessDriver};
use simulator::{
    Account, BehaviourConfig, Call, Fault, Latency, Planned, SimProvider, VirtualClock,
};
use stores::Backend;

use crate::ports::{Receiver, SeededChance};

pub struct Stage {
    pub clock: Arc<dyn Clock>,
    pub backend: Backend,
    pub account: Account,
    pub provider: Arc<Watched>,
    pub config: EngineConfig,
    pub receiver: Arc<Receiver>,
}

/// Records when each task is submitted and polled.
#[derive(Debug)]
pub struct Watched {
    provider: SimProvider,
    clock: Arc<dyn Clock>,
    pub polls: Mutex<Vec<(TaskId, Timestamp)>>,
    pub submits: Mutex<Vec<Timestamp>>,
    /// The `Retry-After` of an unintelligible reply.
    pub retry_after: Mutex<Option<Duration>>,
}

#[async_trait]
impl Provider for Watched {
    async fn submit(&self, challenge: &Challenge, attempt: AttemptName) -> Submission {
        self.submits.lock().unwrap().push(self.clock.now());
        match self.provider.submit(challenge, attempt).await {
            Submission::Ambiguous { why, .. } => {
                Submission::Ambiguous { why, retry_after: *self.retry_after.lock().unwrap() }
            }
            other => other,
        }
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        self.polls.lock().unwrap().push((task.clone(), self.clock.now()));
        self.provider.poll(task).await
    }

    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        let now = self.clock.now();
        self.polls.lock().unwrap().extend(tasks.iter().map(|task| (task.clone(), now)));
        self.provider.poll_many(tasks).await
    }

    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Seen> {
        self.provider.report(task, feedback).await
    }

    async fn balance(&self) -> Result<Money, Seen> {
        self.provider.balance().await
    }

    async fn threads(&self) -> Result<Threads, Seen> {
        self.provider.threads().await
    }
}

/// A notifier that loses every notification.
#[derive(Debug)]
pub struct LostNotifications;

impl Notifier for LostNotifications {
    fn notify(&self, _: ClaimId) {}

    fn subscribe(&self, _: ClaimId) -> Subscription {
        Box::pin(std::future::pending())
    }
}

pub fn story(tell: impl AsyncFnOnce(Stage)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async move { tell(Stage::new()).await });
}

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl Stage {
    fn new() -> Self {
        Self::with(BehaviourConfig::new(7).solving_in(seconds(8)))
    }

    /// Like `Stage::new`, with another provider.
    pub fn with(behaviour: BehaviourConfig) -> Self {
        let clock: Arc<dyn Clock> =
            Arc::new(VirtualClock::new(tokio::time::Instant::now(), Duration::ZERO));
        let account = Account::new(behaviour);
        let provider = SimProvider::new(account.clone(), Arc::clone(&clock), Latency::default());
        let site = Site::new("shop.example.com".parse().unwrap(), "simulated shop");
        let second = seconds(1);
        let config = EngineConfig {
            declarations: Declarations { sites: vec![site], ..Declarations::default() }.into(),
            polling: FixedPolling { first: second, interval: second, min_gap: second, most: 20 }
                .into(),
            ..EngineConfig::default()
        };
        Self {
            provider: Arc::new(Watched {
                provider,
                clock: Arc::clone(&clock),
                polls: Mutex::default(),
                submits: Mutex::default(),
                retry_after: Mutex::default(),
            }),
            backend: stores::open("memory:").unwrap(),
            clock,
            account,
            config,
            receiver: Arc::default(),
        }
    }

    pub async fn gateway(&self, seed: u64) -> Engine {
        Engine::start(self.ports(seed), self.config.clone()).await.unwrap()
    }

    /// A serverless process, which runs in rounds.
    pub fn rounds(&self, seed: u64) -> ServerlessDriver {
        ServerlessDriver::new(self.ports(seed), self.config.clone())
    }

    fn ports(&self, seed: u64) -> Ports {
        Ports {
            store: Arc::clone(&self.backend.store),
            records: Arc::clone(&self.backend.records),
            notifier: Arc::clone(&self.backend.notifier),
            provider: Arc::clone(&self.provider) as Arc<dyn Provider>,
            clock: Arc::clone(&self.clock),
            chance: Arc::new(SeededChance::new(seed)),
            webhooks: Arc::clone(&self.receiver) as Arc<dyn WebhookSender>,
        }
    }

    pub async fn pass(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now().plus(length)).await;
    }

    pub async fn entries(&self) -> Vec<Entry> {
        self.backend.records.entries(0, usize::MAX).await.unwrap()
    }

    /// The dead letters of what failed.
    pub async fn dead_letters(&self) -> usize {
        self.dead_letters_of(DeadLetterClass::Failed).await
    }

    pub async fn dead_letters_of(&self, class: DeadLetterClass) -> usize {
        let open = DeadLetterFilter::open(Scope::All, 10_000);
        let all = DeadLetterFilter { closed: true, class: Some(class), ..open };
        self.backend.records.dead_letters(all).await.unwrap().items.len()
    }

    pub fn paid(&self) -> usize {
        self.account.ledger().accepted.len()
    }

    pub fn fault(&self, on: Call, fault: Fault, times: u32) {
        self.account.plan(Planned::next(on, fault).times(times));
    }
}

pub fn claim_request(key: &str) -> ClaimRequest {
    let pageurl = PageUrl::parse("https://shop.example.com/login").unwrap();
    let draft = ChallengeParts {
        sitekey: Some("0x4AAA".into()),
        pageurl: Some(pageurl),
        ..ChallengeParts::default()
    };
    ClaimRequest {
        worker: WorkerName::new("w").unwrap(),
        project: Project::new("p").unwrap(),
        door: Door::V1,
        challenge: Challenge::new(Kind::Turnstile, draft).unwrap(),
        key: Some(key.into()),
        fresh: false,
        deadline: None,
        allowance: Allowance::default(),
        collect: true,
        callback_url: None,
        address: None,
    }
}

/// Like [`claim_request`], by another worker.
pub fn claim_request_as(worker: &str, key: &str) -> ClaimRequest {
    ClaimRequest { worker: WorkerName::new(worker).unwrap(), ..claim_request(key) }
}

pub async fn open(engine: &Engine, key: &str) -> ClaimId {
    open_with(engine, claim_request(key)).await
}

pub async fn open_with(engine: &Engine, ask: ClaimRequest) -> ClaimId {
    match engine.claim(ask).await.unwrap().outcome {
        Outcome::Waiting { claim, .. } => claim.id,
        other => panic!("not waiting: {other:?}"),
    }
}

pub async fn served(engine: &Engine, id: ClaimId, wait: Duration) -> String {
    match engine.fetch(&Scope::All, id, wait).await.unwrap() {
        Outcome::Served { claim, .. } => claim.token.unwrap().answer.text.expose().to_owned(),
        other => panic!("not served: {other:?}"),
    }
}

pub fn settled_at(entries: &[Entry], id: ClaimId) -> Timestamp {
    let allotted =
        |entry: &&Entry| entry.claim == Some(id) && matches!(entry.event, Event::Allotted { .. });
    entries.iter().find(allotted).unwrap().at
}
