//! Single stories in virtual time: the invariants that need a clock, a crash or a deaf doorbell to show.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    challenge::{Challenge, Draft, Kind},
    claim::{Allowance, ClaimState, Door},
    id::{ClaimId, Nonce, Project, TaskId, WorkerName},
    ledger::{Entry, Event},
    money::Money,
    ports::{
        Clock, DeadLetterFilter, Doorbell, Ear, Fault as Seen, Feedback, Polled, Provider, Scope,
        Submission, Threads,
    },
    site::{PageUrl, Site, Sites},
    solve::AmbiguousPolicy,
    time::Timestamp,
};
use engine::{Ask, Engine, EngineConfig, FixedPolling, Outcome, Ports};
use simulator::{Account, BehaviourConfig, Call, Fault, Latency, Planned, SimProvider};
use stores::Backend;

use crate::ports::{SeededChance, VirtualClock};

/// One store, one provider, any number of gateways.
struct Stage {
    clock: Arc<dyn Clock>,
    backend: Backend,
    account: Account,
    provider: Arc<Watched>,
    config: EngineConfig,
}

/// Remembers when each task was asked for.
#[derive(Debug)]
struct Watched {
    provider: SimProvider,
    clock: Arc<dyn Clock>,
    polls: Mutex<Vec<(TaskId, Timestamp)>>,
    submits: Mutex<Vec<Timestamp>>,
}

#[async_trait]
impl Provider for Watched {
    async fn submit(&self, challenge: &Challenge, nonce: Nonce) -> Submission {
        self.submits.lock().unwrap().push(self.clock.now());
        self.provider.submit(challenge, nonce).await
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        self.polls.lock().unwrap().push((task.clone(), self.clock.now()));
        self.provider.poll(task).await
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

/// A doorbell nobody hears.
#[derive(Debug)]
struct Deaf;

impl Doorbell for Deaf {
    fn ring(&self, _: ClaimId) {}

    fn listen(&self, _: ClaimId) -> Ear {
        Box::pin(std::future::pending())
    }
}

fn story(tell: impl AsyncFnOnce(Stage)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async move { tell(Stage::new()).await });
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl Stage {
    fn new() -> Self {
        let clock: Arc<dyn Clock> =
            Arc::new(VirtualClock::new(tokio::time::Instant::now(), Duration::ZERO));
        let account = Account::new(BehaviourConfig::new(7).solving_in(seconds(8)));
        let provider = SimProvider::new(account.clone(), Arc::clone(&clock), Latency::default());
        let site = Site {
            rule: "shop.example.com".parse().unwrap(),
            basis: "simulated shop".into(),
            expires: None,
            reuse: None,
            ambiguous: AmbiguousPolicy::default(),
            key_ignores_proxy: false,
        };
        let second = seconds(1);
        let config = EngineConfig {
            sites: Arc::new(Sites::new(vec![site], None)),
            polling: Arc::new(FixedPolling {
                first: second,
                interval: second,
                min_gap: second,
                most: 20,
            }),
            ..EngineConfig::default()
        };
        Self {
            provider: Arc::new(Watched {
                provider,
                clock: Arc::clone(&clock),
                polls: Mutex::default(),
                submits: Mutex::default(),
            }),
            backend: stores::open("memory:").unwrap(),
            clock,
            account,
            config,
        }
    }

    async fn gateway(&self, seed: u64) -> Engine {
        let ports = Ports {
            store: Arc::clone(&self.backend.store),
            records: Arc::clone(&self.backend.records),
            doorbell: Arc::clone(&self.backend.doorbell),
            provider: Arc::clone(&self.provider) as Arc<dyn Provider>,
            clock: Arc::clone(&self.clock),
            chance: Arc::new(SeededChance::new(seed)),
        };
        Engine::start(ports, self.config.clone()).await.unwrap()
    }

    async fn pass(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now().plus(length)).await;
    }

    async fn entries(&self) -> Vec<Entry> {
        self.backend.records.entries(0, usize::MAX).await.unwrap()
    }

    async fn dead_letters(&self) -> usize {
        let filter = DeadLetterFilter {
            scope: Scope::All,
            code: None,
            kind: None,
            closed: true,
            from: None,
            limit: 100,
        };
        self.backend.records.dead_letters(filter).await.unwrap().items.len()
    }

    fn paid(&self) -> usize {
        self.account.ledger().accepted.len()
    }

    fn fault(&self, on: Call, fault: Fault, times: u32) {
        self.account.plan(Planned::next(on, fault).times(times));
    }
}

fn ask(key: &str) -> Ask {
    let pageurl = PageUrl::parse("https://shop.example.com/login").unwrap();
    let draft =
        Draft { sitekey: Some("0x4AAA".into()), pageurl: Some(pageurl), ..Draft::default() };
    Ask {
        worker: WorkerName::new("w").unwrap(),
        project: Project::new("p").unwrap(),
        door: Door::V1,
        challenge: Challenge::new(Kind::Turnstile, draft).unwrap(),
        key: Some(key.into()),
        fresh: false,
        deadline: None,
        allowance: Allowance::default(),
        narrowing: None,
        collect: true,
        callback_url: None,
    }
}

async fn open(engine: &Engine, key: &str) -> ClaimId {
    match engine.claim(ask(key)).await.unwrap().outcome {
        Outcome::Waiting { claim, .. } => claim.id,
        other => panic!("not waiting: {other:?}"),
    }
}

async fn served(engine: &Engine, id: ClaimId, wait: Duration) -> String {
    match engine.fetch(&Scope::All, id, wait).await.unwrap() {
        Outcome::Served { claim, .. } => claim.token.unwrap().answer.text.expose().to_owned(),
        other => panic!("not served: {other:?}"),
    }
}

fn settled_at(entries: &[Entry], id: ClaimId) -> Timestamp {
    let allotted =
        |entry: &&Entry| entry.claim == Some(id) && matches!(entry.event, Event::Allotted { .. });
    entries.iter().find(allotted).unwrap().at
}

/// I14.
#[test]
fn with_every_hint_lost_a_caller_is_answered_within_the_reread_bound() {
    story(async |mut stage| {
        stage.backend.doorbell = Arc::new(Deaf);
        let engine = stage.gateway(1).await;
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(60)).await;
        let late = stage.clock.now().since(settled_at(&stage.entries().await, id));
        assert!(late <= Duration::from_millis(1_100), "{late:?}");
    });
}

/// I14, the other half: with hints there is no timer between token and caller.
#[test]
fn a_hint_wakes_the_caller_at_once() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(60)).await;
        let late = stage.clock.now().since(settled_at(&stage.entries().await, id));
        assert!(late <= Duration::from_millis(2), "{late:?}");
    });
}

/// I15.
#[test]
fn a_caller_who_hangs_up_abandons_nothing() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let id = open(&engine, "a").await;
        tokio::time::timeout(seconds(3), engine.fetch(&Scope::All, id, seconds(60)))
            .await
            .unwrap_err();
        stage.pass(seconds(20)).await;
        served(&engine, id, Duration::ZERO).await;
        assert_eq!(stage.paid(), 1);
    });
}

/// I15 with a withdrawal: the paid token serves the next claim.
#[test]
fn a_withdrawn_claims_token_serves_the_next_one() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let first = open(&engine, "a").await;
        stage.pass(seconds(2)).await;
        assert_eq!(engine.withdraw(&Scope::All, first).await.unwrap().state, ClaimState::Withdrawn);
        stage.pass(seconds(20)).await;
        let outcome = engine.claim(ask("b")).await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::Served { .. }), "{outcome:?}");
        assert_eq!(stage.paid(), 1);
    });
}

/// I16.
#[test]
fn a_dead_gateways_solve_is_taken_over_within_lease_and_sweep() {
    story(async |stage| {
        let first = stage.gateway(1).await;
        let second = stage.gateway(2).await;
        let id = open(&first, "a").await;
        stage.pass(seconds(2)).await;
        first.crash();
        let died = stage.clock.now();
        served(&second, id, seconds(60)).await;
        let took = stage.clock.now().since(died);
        assert!(took <= seconds(18), "{took:?}");
        assert_eq!(stage.paid(), 1);
    });
}

/// P13.
#[test]
fn a_drained_gateway_hands_over_at_once_and_loses_nothing() {
    story(async |mut stage| {
        stage.config.drain_grace = seconds(1);
        let first = stage.gateway(1).await;
        let second = stage.gateway(2).await;
        let id = open(&first, "a").await;
        stage.pass(seconds(2)).await;
        first.drain().await;
        assert!(first.claim(ask("b")).await.is_err(), "a draining gateway takes nothing new");
        let drained = stage.clock.now();
        served(&second, id, seconds(60)).await;
        let took = stage.clock.now().since(drained);
        assert!(took <= seconds(8), "the solve itself takes 8 s: {took:?}");
        assert_eq!(stage.paid(), 1);
    });
}

/// I17.
#[test]
fn polls_stay_within_their_number_and_gap_and_none_follows_the_end() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::NeverReady, 1);
        let lost = open(&engine, "never").await;
        stage.pass(seconds(1)).await;
        let found = open(&engine, "soon").await;
        served(&engine, found, seconds(60)).await;
        stage.pass(seconds(1_200)).await;
        let polls = stage.provider.polls.lock().unwrap().clone();
        let tasks: std::collections::BTreeSet<_> =
            polls.iter().map(|(task, _)| task.clone()).collect();
        assert_eq!(tasks.len(), 2);
        for task in tasks {
            let times: Vec<_> =
                polls.iter().filter(|(t, _)| *t == task).map(|(_, at)| *at).collect();
            assert!(times.len() <= 20, "{} polls", times.len());
            assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= seconds(1)));
        }
        let ended = settled_at(&stage.entries().await, found);
        let after = polls
            .iter()
            .filter(|(_, at)| *at > ended)
            .map(|(task, _)| task)
            .collect::<std::collections::BTreeSet<_>>();
        assert_eq!(after.len(), 1, "only the task that is never ready is asked for again");
        assert!(matches!(
            engine.fetch(&Scope::All, lost, Duration::ZERO).await.unwrap(),
            Outcome::Failed(_)
        ));
    });
}

/// I18.
#[test]
fn retry_after_is_a_floor() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::TooManyRequests { retry_after: Some(7) }, 1);
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(60)).await;
        let submits = stage.provider.submits.lock().unwrap().clone();
        assert_eq!(submits.len(), 2);
        assert!(submits[1].since(submits[0]) >= seconds(7));
    });
}

/// I20.
#[test]
fn a_solve_whose_submission_kills_the_gateway_again_and_again_is_given_up() {
    story(async |mut stage| {
        stage.config.ambiguity_budget = 100;
        stage.fault(Call::Submit, Fault::Hang, 100);
        let mut engine = stage.gateway(0).await;
        let id = open(&engine, "a").await;
        for life in 1..=3 {
            stage.pass(seconds(3)).await;
            engine.crash();
            stage.pass(seconds(16)).await;
            engine = stage.gateway(life).await;
        }
        stage.pass(seconds(200)).await;
        assert!(!matches!(
            engine.fetch(&Scope::All, id, Duration::ZERO).await.unwrap(),
            Outcome::Waiting { .. }
        ));
        let submits = stage.provider.submits.lock().unwrap().len();
        assert!(submits <= 2, "one submission and one authorised one, not {submits}");
    });
}

/// I22.
#[test]
fn tasks_in_flight_stay_within_the_slots() {
    story(async |mut stage| {
        stage.config.slots = 3;
        let engine = stage.gateway(1).await;
        let mut ids = Vec::new();
        for n in 0..12 {
            ids.push(open(&engine, &format!("key-{n}")).await);
        }
        let mut most = 0;
        for _ in 0..600 {
            stage.pass(Duration::from_millis(100)).await;
            let now = stage.clock.now();
            most = most.max(stage.account.with(|behaviour| behaviour.threads(now)).working);
        }
        assert_eq!(most, 3);
        for id in ids {
            served(&engine, id, Duration::ZERO).await;
        }
    });
}

/// I28.
#[test]
fn an_empty_account_kills_nothing_and_is_probed_once_per_step() {
    story(async |mut stage| {
        stage.config.deadline = seconds(1_000);
        let engine = stage.gateway(1).await;
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        let mut ids = Vec::new();
        for n in 0..10 {
            ids.push(open(&engine, &format!("key-{n}")).await);
        }
        stage.pass(seconds(100)).await;
        // Submissions already on their way when the trouble shows do not count as probes.
        let submits = stage.provider.submits.lock().unwrap().clone();
        let probes = submits.iter().filter(|at| at.since(submits[0]) > seconds(5)).count();
        assert_eq!(probes, 1, "one a minute");
        assert!(engine.account_trouble().is_some());
        stage.account.with(|behaviour| behaviour.set_balance(Money::from_micros(1_000_000)));
        stage.pass(seconds(200)).await;
        for id in ids {
            served(&engine, id, Duration::ZERO).await;
        }
        assert_eq!(stage.dead_letters().await, 0);
        assert_eq!(engine.account_trouble(), None);
    });
}

/// A late answer is banked and closes its dead letter.
#[test]
fn a_late_answer_is_banked_and_closes_its_dead_letter() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let mut hasty = ask("hasty");
        hasty.deadline = Some(seconds(4));
        let outcome = engine.claim(hasty).await.unwrap().outcome;
        let Outcome::Waiting { claim, .. } = outcome else { panic!("{outcome:?}") };
        let outcome = engine.fetch(&Scope::All, claim.id, seconds(6)).await.unwrap();
        assert!(matches!(outcome, Outcome::Lapsed(_)), "{outcome:?}");
        stage.pass(seconds(20)).await;
        let closed = |entry: &Entry| matches!(entry.event, Event::DeadLetterClosed);
        assert!(stage.entries().await.iter().any(closed));
        let outcome = engine.claim(ask("next")).await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::Served { .. }), "{outcome:?}");
        assert_eq!(stage.paid(), 1);
    });
}

/// Two processes may draw the same name: the second draws again.
#[test]
fn a_name_that_is_taken_is_drawn_again() {
    story(async |stage| {
        // Equal seeds draw equal names.
        let (first, second) = (stage.gateway(1).await, stage.gateway(1).await);
        let (a, b) = (open(&first, "a").await, open(&second, "b").await);
        assert_ne!(a, b);
    });
}

/// A poll fault never causes a submission.
#[test]
fn poll_faults_are_never_paid_for() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Poll, Fault::Status(502), 5);
        stage.fault(Call::Poll, Fault::Html, 3);
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(60)).await;
        assert_eq!((stage.paid(), stage.provider.submits.lock().unwrap().len()), (1, 1));
    });
}
