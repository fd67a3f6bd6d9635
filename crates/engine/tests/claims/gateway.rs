//! A gateway under test: one engine on a store in memory. Several may share a store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Allowance, Claim, Door},
    dead_letter::DeadLetter,
    declarations::Declarations,
    id::{ClaimId, Project, WorkerName},
    ledger::Event,
    ports::{Chance, Clock, DeadLetterFilter, NoWebhooks, Provider, Scope},
    site::{PageUrl, Site},
    solve::AmbiguousPolicy,
};
use engine::{Admitted, ClaimRequest, Engine, EngineConfig, Outcome, Ports};
use simulator::VirtualClock;
use stores::Backend;

use crate::provider::ScriptedProvider;

/// Everything an engine runs on.
pub(crate) struct World {
    pub(crate) backend: Backend,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) provider: Arc<ScriptedProvider>,
    pub(crate) config: EngineConfig,
}

/// Different bits for every draw, the same in every run.
#[derive(Debug)]
struct Sequence(AtomicU64);

impl Chance for Sequence {
    fn draw(&self) -> u64 {
        let n = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let clock: Arc<dyn Clock> =
            Arc::new(VirtualClock::new(tokio::time::Instant::now(), Duration::ZERO));
        Self {
            backend: stores::open("memory:").unwrap(),
            provider: Arc::new(ScriptedProvider::new(Arc::clone(&clock))),
            clock,
            config: EngineConfig {
                declarations: declared(AmbiguousPolicy::ResubmitOnce),
                ..EngineConfig::default()
            },
        }
    }

    /// Starts a gateway. Each needs a seed of its own.
    pub(crate) async fn gateway(&self, seed: u64) -> Engine {
        Engine::start(self.ports(seed), self.config.clone()).await.unwrap()
    }

    pub(crate) fn ports(&self, seed: u64) -> Ports {
        Ports {
            store: Arc::clone(&self.backend.store),
            records: Arc::clone(&self.backend.records),
            notifier: Arc::clone(&self.backend.notifier),
            provider: Arc::clone(&self.provider) as Arc<dyn Provider>,
            clock: Arc::clone(&self.clock),
            chance: Arc::new(Sequence(AtomicU64::new(seed << 32))),
            webhooks: Arc::new(NoWebhooks),
        }
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now().plus(length)).await;
    }

    pub(crate) async fn events(&self, id: ClaimId) -> Vec<Event> {
        let entries = self.backend.records.explain(id).await.unwrap();
        entries.into_iter().map(|entry| entry.event).collect()
    }

    pub(crate) async fn dead_letters(&self) -> Vec<DeadLetter> {
        let open = DeadLetterFilter::open(Scope::All, 100);
        self.backend.records.dead_letters(open).await.unwrap().items
    }
}

/// One declared site.
pub(crate) fn declared(ambiguous: AmbiguousPolicy) -> Arc<Declarations> {
    let site = Site { ambiguous, ..Site::new("shop.example.com".parse().unwrap(), "our own shop") };
    Declarations { sites: vec![site], ..Declarations::default() }.into()
}

/// A Turnstile on a page.
pub(crate) fn challenge(page: &str) -> Challenge {
    let draft = ChallengeParts {
        sitekey: Some("0x4AAA".into()),
        pageurl: Some(PageUrl::parse(page).unwrap()),
        ..ChallengeParts::default()
    };
    Challenge::new(Kind::Turnstile, draft).unwrap()
}

/// A claim of worker ann on the declared site.
pub(crate) fn request(key: &str) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerName::new("ann").unwrap(),
        project: Project::new("shop").unwrap(),
        door: Door::V1,
        challenge: challenge("https://shop.example.com/login"),
        key: Some(key.into()),
        fresh: false,
        deadline: None,
        allowance: Allowance::default(),
        collect: true,
        callback_url: None,
        address: None,
    }
}

pub(crate) async fn admit(engine: &Engine, key: &str) -> Admitted {
    engine.claim(request(key)).await.unwrap()
}

/// Opens a claim that has to wait.
pub(crate) async fn open(engine: &Engine, key: &str) -> ClaimId {
    match admit(engine, key).await.outcome {
        Outcome::Waiting { claim, .. } => claim.id,
        other => panic!("not waiting: {other:?}"),
    }
}

/// Waits up to an hour for the claim's end.
pub(crate) async fn fetch(engine: &Engine, id: ClaimId) -> Outcome {
    engine.fetch(&Scope::All, id, Duration::from_secs(3600)).await.unwrap()
}

/// Waits for the claim's end, which must be a token.
pub(crate) async fn token(engine: &Engine, id: ClaimId) -> String {
    match fetch(engine, id).await {
        Outcome::Served { claim, .. } => text(&claim),
        other => panic!("not served: {other:?}"),
    }
}

/// Waits for the claim's end, which must be a failure; returns its code.
pub(crate) async fn failure(engine: &Engine, id: ClaimId) -> String {
    match fetch(engine, id).await {
        Outcome::Failed(claim) => claim.code.unwrap().to_string(),
        other => panic!("not failed: {other:?}"),
    }
}

pub(crate) fn text(claim: &Claim) -> String {
    claim.token.as_ref().unwrap().answer.text.expose().to_owned()
}

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}
