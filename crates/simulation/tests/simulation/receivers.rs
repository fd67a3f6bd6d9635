//! Receivers that are dead, slow or back again, and what that means for the others, in virtual time.

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
    claim::Allowance,
    id::{ClaimId, WorkerName},
    ports::{AddressRefused, Clock, Courier, NotTold, Parcel, Scope},
    secret::Secret,
    time::Timestamp,
};
use engine::{Alerts, Ask, Engine, Ports};

use simulation::{
    ports::SeededChance,
    stage::{Stage, ask, open, open_with, seconds, story},
};

/// The receivers of the world by host: `dead` swallows everything for five seconds as long as it is dead, `slow` takes
/// half a second, all others take at once.
#[derive(Debug)]
struct Hosts {
    clock: Arc<dyn Clock>,
    is_dead: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Under way, by host.
    telling: BTreeMap<String, usize>,
    /// The most that ever were, by host.
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
            doorbell: Arc::clone(&stage.backend.doorbell),
            provider: Arc::clone(&stage.provider) as _,
            clock: Arc::clone(&stage.clock),
            chance: Arc::new(SeededChance::new(1)),
            courier: Arc::clone(self) as _,
        };
        Engine::start(ports, stage.config.clone()).await.unwrap()
    }

    /// When each callback of these claims was taken, as often as it was.
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
impl Courier for Hosts {
    async fn check(&self, _: &str) -> Result<(), AddressRefused> {
        Ok(())
    }

    async fn tell(&self, parcel: &Parcel) -> Result<(), NotTold> {
        let host = parcel.url.split('/').nth(2).unwrap().to_owned();
        let is_dead = host == "dead" && self.is_dead.load(Ordering::SeqCst);
        {
            let seen = &mut *self.seen.lock().unwrap();
            seen.tried.push(parcel.id.clone());
            let telling = seen.telling.entry(host.clone()).or_default();
            *telling += 1;
            let most = seen.most.entry(host.clone()).or_default();
            *most = (*most).max(*telling);
        }
        let length = match host.as_str() {
            "dead" if is_dead => seconds(5),
            "slow" => Duration::from_millis(500),
            _ => Duration::from_millis(20),
        };
        self.clock.sleep_until(self.clock.now().plus(length)).await;
        let seen = &mut *self.seen.lock().unwrap();
        *seen.telling.get_mut(&host).unwrap() -= 1;
        if is_dead {
            return Err(NotTold("no connection within the timeout".into()));
        }
        seen.got.push((parcel.id.clone(), self.clock.now()));
        Ok(())
    }
}

/// Claims that end at once, each with a callback to this host.
async fn ended(engine: &Engine, host: &str, count: usize) -> Vec<ClaimId> {
    let mut ids = Vec::new();
    for n in 0..count {
        let url = Secret::new(format!("https://{host}/{n}"));
        let ask = Ask { key: None, fresh: true, callback_url: Some(url), ..ask("") };
        let id = open_with(engine, ask).await;
        engine.withdraw(&Scope::All, id).await.unwrap();
        ids.push(id);
    }
    ids
}

/// The bound of docs/limits.md: others wait for two seconds, now and whenever the ten thousand come due again.
#[test]
fn ten_thousand_callbacks_of_a_dead_receiver_hold_up_nobody_else() {
    story(async |mut stage| {
        stage.config.most_queued = usize::MAX;
        let hosts = Hosts::new(&stage);
        let engine = hosts.gateway(&stage).await;
        let dead = ended(&engine, "dead", 10_000).await;
        for _ in 0..200 {
            let ids = ended(&engine, "alive", 5).await;
            let told = stage.clock.now();
            stage.pass(seconds(3)).await;
            let taken = hosts.taken(&ids);
            assert_eq!(taken.len(), 5, "at {told}");
            let lag = taken.iter().max().unwrap().since(told);
            assert!(lag <= Duration::from_millis(2500), "{lag:?} at {told}");
        }
        assert!(hosts.most("dead") <= 4);
        assert!(hosts.taken(&dead).is_empty());
        // Two hours later all of them are there: not lost, only late.
        hosts.is_dead.store(false, Ordering::SeqCst);
        stage.pass(seconds(7200)).await;
        assert_eq!(hosts.taken(&dead).len(), 10_000, "each once");
    });
}

/// A receiver that is slow and has much to take is told steadily, without a second telling of any.
#[test]
fn a_slow_receiver_is_told_four_at_a_time_and_everything_once() {
    story(async |mut stage| {
        stage.config.most_queued = usize::MAX;
        let hosts = Hosts::new(&stage);
        let engine = hosts.gateway(&stage).await;
        let ids = ended(&engine, "slow", 2000).await;
        // At 8 a second.
        stage.pass(seconds(260)).await;
        assert_eq!(hosts.taken(&ids).len(), 2000);
        assert_eq!(hosts.most("slow"), 4);
        assert_eq!(hosts.seen.lock().unwrap().tried.len(), 2000, "none is told twice");
    });
}

fn alerts(allowances: BTreeMap<WorkerName, Allowance>) -> Alerts {
    let url = Secret::new("https://dead/alerts");
    Alerts { url, dead_letters: 10, cooldown: seconds(900), allowances }
}

/// Two workers use up their budgets in the same look, and the receiver is away: two ids, the same at every try, also when
/// the budgets are others by then.
#[test]
fn an_alert_keeps_its_id_until_it_is_taken() {
    story(async |mut stage| {
        let budget = |most| Allowance { solves_per_day: Some(most), cost_per_day: None };
        let workers = ["w", "x"].map(|name| WorkerName::new(name).unwrap());
        stage.config.alerts = Some(alerts(BTreeMap::new()));
        let hosts = Hosts::new(&stage);
        let engine = hosts.gateway(&stage).await;
        for worker in &workers {
            open_with(&engine, Ask { worker: worker.clone(), ..ask("a") }).await;
        }
        stage.pass(seconds(60)).await;
        assert!(hosts.seen.lock().unwrap().tried.is_empty(), "no budgets are watched yet");
        engine.set_allowances(workers.clone().map(|worker| (worker, budget(1))).into());
        stage.pass(seconds(200)).await;
        engine.set_allowances(BTreeMap::new());
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

/// What is told anew after the cooldown is another notice.
#[test]
fn trouble_that_lasts_is_told_under_a_new_id_after_the_cooldown() {
    story(async |mut stage| {
        let worker = WorkerName::new("w").unwrap();
        let allowance = Allowance { solves_per_day: Some(1), cost_per_day: None };
        stage.config.alerts = Some(alerts(BTreeMap::from([(worker, allowance)])));
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
