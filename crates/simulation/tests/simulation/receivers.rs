//! Callback receivers that are dead, slow or back again, and their effect on others, in virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    budget::{Allowance, Budgets},
    id::{ClaimId, WorkerName},
    ports::{AddressRefused, Clock, Scope, Webhook, WebhookError, WebhookSender},
    secret::Secret,
    time::Timestamp,
};
use engine::{Alerts, ClaimRequest, Engine, Ports, Slots};

use simulation::{
    ports::SeededChance,
    stage::{Stage, claim_request, open, open_with, seconds, story},
};

/// The receivers by host: `dead` times out after five seconds as long as it is dead, `slow` takes half a second, and all
/// others accept at once.
#[derive(Debug)]
struct Hosts {
    clock: Arc<dyn Clock>,
    is_dead: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Callbacks in flight, by host.
    in_flight: BTreeMap<String, usize>,
    /// The maximum of callbacks in flight, by host.
    most: BTreeMap<String, usize>,
    tried: Vec<String>,
    got: Vec<(String, Timestamp)>,
}

impl Hosts {
    fn new(stage: &Stage) -> Arc<Self> {
        let clock = Arc::clone(&stage.clock);
        Arc::new(Self { clock, is_dead: AtomicBool::new(true), seen: Mutex::default() })
    }

    async fn gateway(self: &Arc<Self>, stage: &Stage) -> Engine {
        let ports = Ports {
            store: Arc::clone(&stage.backend.store),
            records: Arc::clone(&stage.backend.records),
            notifier: Arc::clone(&stage.backend.notifier),
            provider: Arc::clone(&stage.provider) as _,
            clock: Arc::clone(&stage.clock),
            chance: Arc::new(SeededChance::new(1)),
            webhooks: Arc::clone(self) as _,
        };
        Engine::start(ports, stage.config.clone()).await.unwrap()
    }

    /// The times at which the callbacks of these claims were accepted.
    fn taken(&self, ids: &[ClaimId]) -> Vec<Timestamp> {
        let names: BTreeSet<_> = ids.iter().map(|id| format!("msg_{id}_withdrawn")).collect();
        let seen = self.seen.lock().unwrap();
        seen.got.iter().filter(|(id, _)| names.contains(id)).map(|(_, at)| *at).collect()
    }

    fn most(&self, host: &str) -> usize {
        self.seen.lock().unwrap().most.get(host).copied().unwrap_or(0)
    }
}

#[async_trait]
impl WebhookSender for Hosts {
    async fn check(&self, _: Option<&WorkerName>, _: &str) -> Result<(), AddressRefused> {
        Ok(())
    }

    async fn send(&self, webhook: &Webhook) -> Result<(), WebhookError> {
        let host = webhook.url.split('/').nth(2).unwrap().to_owned();
        let is_dead = host == "dead" && self.is_dead.load(Ordering::SeqCst);
        {
            let seen = &mut *self.seen.lock().unwrap();
            seen.tried.push(webhook.id.clone());
            let in_flight = seen.in_flight.entry(host.clone()).or_default();
            *in_flight += 1;
            let most = seen.most.entry(host.clone()).or_default();
            *most = (*most).max(*in_flight);
        }
        let length = match host.as_str() {
            "dead" if is_dead => seconds(5),
            "slow" => Duration::from_millis(500),
            _ => Duration::from_millis(20),
        };
        self.clock.sleep_until(self.clock.now().plus(length)).await;
        let seen = &mut *self.seen.lock().unwrap();
        *seen.in_flight.get_mut(&host).unwrap() -= 1;
        if is_dead {
            return Err(WebhookError("no connection within the timeout".into()));
        }
        seen.got.push((webhook.id.clone(), self.clock.now()));
        Ok(())
    }
}

/// Claims that end at once, each with a callback to this host. With a slot, they would be paid before they are withdrawn.
async fn ended(engine: &Engine, host: &str, count: usize) -> Vec<ClaimId> {
    let mut ids = Vec::new();
    for n in 0..count {
        let url = Secret::new(format!("https://{host}/{n}"));
        let request =
            ClaimRequest { key: None, fresh: true, callback_url: Some(url), ..claim_request("") };
        let id = open_with(engine, request).await;
        engine.withdraw(&Scope::All, id, None).await.unwrap();
        ids.push(id);
    }
    ids
}

/// The bound in docs/limits.md: other receivers wait for two seconds, now and when the ten thousand are due again.
#[test]
fn ten_thousand_callbacks_of_a_dead_receiver_delay_no_other_receiver() {
    story(async |mut stage| {
        (stage.config.most_queued, stage.config.slots) = (usize::MAX, Slots::Fixed(0));
        let hosts = Hosts::new(&stage);
        let engine = hosts.gateway(&stage).await;
        let dead = ended(&engine, "dead", 10_000).await;
        for _ in 0..200 {
            let ids = ended(&engine, "alive", 5).await;
            let at = stage.clock.now();
            stage.pass(seconds(3)).await;
            let taken = hosts.taken(&ids);
            assert_eq!(taken.len(), 5, "at {at}");
            let lag = taken.iter().max().unwrap().since(at);
            assert!(lag <= Duration::from_millis(2500), "{lag:?} at {at}");
        }
        assert!(hosts.most("dead") <= 4);
        assert!(hosts.taken(&dead).is_empty());
        // Two hours later all of them have arrived: late, but not lost.
        hosts.is_dead.store(false, Ordering::SeqCst);
        stage.pass(seconds(7200)).await;
        assert_eq!(hosts.taken(&dead).len(), 10_000, "each once");
    });
}

/// A slow receiver with many callbacks gets them steadily, each once.
#[test]
fn a_slow_receiver_gets_four_callbacks_at_a_time_and_each_once() {
    story(async |mut stage| {
        (stage.config.most_queued, stage.config.slots) = (usize::MAX, Slots::Fixed(0));
        let hosts = Hosts::new(&stage);
        let engine = hosts.gateway(&stage).await;
        let ids = ended(&engine, "slow", 2000).await;
        // At 8 a second.
        stage.pass(seconds(260)).await;
        assert_eq!(hosts.taken(&ids).len(), 2000);
        assert_eq!(hosts.most("slow"), 4);
        assert_eq!(hosts.seen.lock().unwrap().tried.len(), 2000, "none is sent twice");
    });
}

fn alerts() -> Alerts {
    let url = Secret::new("https://dead/alerts");
    Alerts { url, dead_letters: 10, cooldown: seconds(900) }
}

/// Two workers use up their budgets at the same time, and the receiver is down: two ids, the same at every try, even
/// when the budgets have changed by then.
#[test]
fn an_alert_keeps_its_id_until_it_is_taken() {
    story(async |mut stage| {
        let budget = |most| Allowance { solves_per_day: Some(most), ..Allowance::default() };
        let workers = ["w", "x"].map(|name| WorkerName::new(name).unwrap());
        stage.config.alerts = Some(alerts());
        let hosts = Hosts::new(&stage);
        let engine = hosts.gateway(&stage).await;
        for worker in &workers {
            open_with(&engine, ClaimRequest { worker: worker.clone(), ..claim_request("a") }).await;
        }
        stage.pass(seconds(60)).await;
        assert!(hosts.seen.lock().unwrap().tried.is_empty(), "no budgets are watched yet");
        let watched = workers.clone().map(|worker| (worker, budget(1))).into();
        engine.set_budgets(Budgets { workers: watched, ..Budgets::default() });
        stage.pass(seconds(200)).await;
        engine.set_budgets(Budgets::default());
        hosts.is_dead.store(false, Ordering::SeqCst);
        stage.pass(seconds(1800)).await;
        let seen = hosts.seen.lock().unwrap();
        let tried: BTreeSet<_> = seen.tried.iter().cloned().collect();
        assert!(seen.tried.len() >= 8, "each was tried again and again: {:?}", seen.tried);
        let got: Vec<_> = seen.got.iter().map(|(id, _)| id.clone()).collect();
        assert_eq!((got.len(), tried.len()), (2, 2), "{tried:?}");
        assert!(got.iter().all(|id| tried.contains(id)));
        assert!(got.iter().all(|id| id.starts_with("alert_budget_used_")), "{got:?}");
    });
}

/// An alert repeated after the cooldown is a new notice.
#[test]
fn a_lasting_problem_is_announced_with_a_new_id_after_the_cooldown() {
    story(async |mut stage| {
        let worker = WorkerName::new("w").unwrap();
        let allowance = Allowance { solves_per_day: Some(1), ..Allowance::default() };
        stage.config.alerts = Some(alerts());
        stage.config.budgets.workers.insert(worker, allowance);
        let hosts = Hosts::new(&stage);
        hosts.is_dead.store(false, Ordering::SeqCst);
        let engine = hosts.gateway(&stage).await;
        open(&engine, "a").await;
        stage.pass(seconds(1200)).await;
        let got: BTreeSet<_> =
            hosts.seen.lock().unwrap().got.iter().map(|(id, _)| id.clone()).collect();
        assert_eq!(got.len(), 2, "{got:?}");
    });
}
