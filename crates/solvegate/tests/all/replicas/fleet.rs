//! Several gateways on one store and one provider, each in its own directory. A killed gateway comes back on another
//! port behind the same [`Door`], as behind a load balancer.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use domain::secret::Secret;
use rustix::process::Signal;
use solvegate::client::{Call, Remote, Reply};
use tempfile::TempDir;

use crate::support::{Gateway, Settings, Sim, WORKER, eventually};

pub(super) const GATEWAYS: usize = 3;

pub(super) struct Fleet {
    pub(super) sim: Sim,
    pub(super) doors: Doors,
    gateways: Vec<Gateway>,
    /// By gateway.
    settings: Vec<Settings>,
    dirs: Vec<TempDir>,
    /// The logs of killed gateways.
    said: Vec<String>,
}

/// The entrances by gateway; they stay the same when a gateway restarts.
#[derive(Clone)]
pub(super) struct Doors(Arc<[Door]>);

/// The entrance to one gateway; closed while it is dead, because the gateway of another test may have its port by then.
pub(super) struct Door(Mutex<Option<Arc<Remote>>>);

// === impl Fleet ===

impl Fleet {
    /// Starts all gateways on a store, with a provider that takes this long.
    pub(super) fn start(store: &str, solve_time: &str) -> Self {
        Self::with_slots(store, solve_time, Settings::default().slots)
    }

    /// The same with this many slots at each gateway.
    pub(super) fn with_slots(store: &str, solve_time: &str, slots: &'static str) -> Self {
        let settings = Settings { slots, poll_ms: 100, ..Settings::default() };
        Self::with(store, &["--solve-time", solve_time], settings)
    }

    /// The same with these options of the simulator, and these settings.
    pub(super) fn with(store: &str, sim: &[&str], settings: Settings) -> Self {
        Self::with_each(vec![store.to_owned(); GATEWAYS], sim, settings)
    }

    /// The same with an address of the store for each gateway.
    pub(super) fn with_each(stores: Vec<String>, sim: &[&str], settings: Settings) -> Self {
        let dirs: Vec<TempDir> = stores.iter().map(|_| tempfile::tempdir().unwrap()).collect();
        let sim = Sim::start(dirs[0].path(), sim);
        let settings = Settings {
            // The budget must not limit the authorisations under test.
            top: "ambiguity_budget = 100000".into(),
            // The price that the simulator charges.
            upstream: "price_per_1000 = { turnstile = 1.45, image = 0.7 }".into(),
            log: "warn",
            ..settings
        };
        let each = |store| Settings { store, ..settings.clone() };
        let settings: Vec<Settings> = stores.into_iter().map(each).collect();
        let start = |(dir, own): (&TempDir, _)| Gateway::with(dir.path(), &sim, own);
        let gateways: Vec<Gateway> = dirs.iter().zip(&settings).map(start).collect();
        let doors = Doors(gateways.iter().map(Door::new).collect());
        Self { sim, doors, gateways, settings, dirs, said: Vec::new() }
    }

    pub(super) fn gateway(&self, number: usize) -> &Gateway {
        &self.gateways[number]
    }

    /// Changes the configuration files of all gateways and has them reload. Returns once `is_done` at every one.
    pub(super) async fn reload(
        &self,
        change: impl Fn(String) -> String,
        is_done: impl AsyncFn(&Gateway) -> bool,
    ) {
        for (gateway, dir) in self.gateways.iter().zip(&self.dirs) {
            let file = dir.path().join("solvegate.toml");
            fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
            gateway.process.signal(Signal::HUP);
        }
        for gateway in &self.gateways {
            eventually("the reload", async || is_done(gateway).await.then_some(())).await;
        }
    }

    /// kill -9.
    pub(super) fn kill(&mut self, number: usize) {
        self.doors.all()[number].close();
        let process = &mut self.gateways[number].process;
        process.signal(Signal::KILL);
        process.wait();
        self.said.push(process.stderr());
    }

    /// Starts a killed gateway again, on a new port, because another process may have taken the old one.
    pub(super) fn restart(&mut self, number: usize) {
        let settings = &self.settings[number];
        let gateway = Gateway::with(self.dirs[number].path(), &self.sim, settings);
        self.lead_to(number, gateway);
    }

    /// The same with other variables of its environment, and again and again if it ends at once, as a supervisor does.
    pub(super) async fn restart_with(&mut self, number: usize, environment: Vec<(String, String)>) {
        self.settings[number].environment = environment;
        let gateway = eventually("a gateway starts", async || {
            let settings = &self.settings[number];
            let started = Gateway::try_with(self.dirs[number].path(), &self.sim, settings);
            started.inspect_err(|said| println!("gateway {number} did not start: {said}")).ok()
        })
        .await;
        self.lead_to(number, gateway);
    }

    fn lead_to(&mut self, number: usize, gateway: Gateway) {
        self.doors.all()[number].lead_to(&gateway);
        self.gateways[number] = gateway;
    }

    /// How many times a gateway detected lost writes.
    pub(super) fn losses_noticed(&self) -> usize {
        self.logs().lines().filter(|line| line.contains("Redis lost writes it had")).count()
    }

    /// The logs of all processes, including killed ones.
    pub(super) fn logs(&self) -> String {
        let living = self.gateways.iter().map(|gateway| gateway.process.stderr());
        self.said.iter().cloned().chain(living).collect()
    }
}

// === impl Doors ===

impl Doors {
    pub(super) fn all(&self) -> &[Door] {
        &self.0
    }

    /// A random entrance.
    pub(super) fn any(&self) -> &Door {
        &self.0[fastrand::usize(..self.0.len())]
    }
}

// === impl Door ===

impl Door {
    fn new(gateway: &Gateway) -> Self {
        Self(Mutex::new(Some(Self::remote(gateway))))
    }

    fn remote(gateway: &Gateway) -> Arc<Remote> {
        Arc::new(Remote::new(&gateway.base, Secret::new(WORKER), None).unwrap())
    }

    fn close(&self) {
        *self.0.lock().unwrap() = None;
    }

    fn lead_to(&self, gateway: &Gateway) {
        *self.0.lock().unwrap() = Some(Self::remote(gateway));
    }

    /// Sends to the gateway currently behind this door; `None` when it is down or died before replying.
    pub(super) async fn try_send(&self, call: &Call) -> Option<Reply> {
        let remote = self.0.lock().unwrap().clone();
        remote?.send(call).await.ok()
    }

    pub(super) async fn send(&self, call: &Call) -> Reply {
        self.try_send(call).await.expect("the gateway is there")
    }
}
