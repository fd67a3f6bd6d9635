//! The gateways, each in a directory of its own, on one store and one provider. One that is killed comes back on its port.

use std::{sync::Arc, time::Duration};

use domain::secret::Secret;
use rustix::process::Signal;
use solvegate::client::Remote;
use tempfile::TempDir;

use crate::support::{Gateway, Settings, Sim, WORKER};

pub(super) const GATEWAYS: usize = 3;

/// The gateways and their provider.
pub(super) struct Fleet {
    pub(super) sim: Sim,
    pub(super) doors: Doors,
    gateways: Vec<Gateway>,
    settings: Settings,
    dirs: Vec<TempDir>,
    /// What the dead ones said.
    said: Vec<String>,
}

/// The ways in, by gateway; they stay when a gateway is restarted.
pub(super) type Doors = Arc<Vec<Remote>>;

// === impl Fleet ===

impl Fleet {
    /// Starts them all on a store, with a provider that takes this long.
    pub(super) fn start(store: &str, solve_time: &str) -> Self {
        let dirs: Vec<TempDir> = (0..GATEWAYS).map(|_| tempfile::tempdir().unwrap()).collect();
        let sim = Sim::start(dirs[0].path(), &["--solve-time", solve_time]);
        let settings = Settings {
            store: store.to_owned(),
            // Authorising is what is tested, not the budget for it.
            top: "ambiguity_budget = 100000".into(),
            // As the simulator charges.
            upstream: "price_per_1000 = { turnstile = 1.45, image = 0.7 }".into(),
            poll_ms: 100,
            log: "warn",
            ..Settings::default()
        };
        let start = |dir: &TempDir| Gateway::with(dir.path(), &sim, &settings);
        let gateways: Vec<Gateway> = dirs.iter().map(start).collect();
        let door = |gateway: &Gateway| Remote::new(&gateway.base, Secret::new(WORKER), None);
        let doors = gateways.iter().map(|gateway| door(gateway).unwrap()).collect();
        Self { sim, doors: Arc::new(doors), gateways, settings, dirs, said: Vec::new() }
    }

    pub(super) fn gateway(&self, number: usize) -> &Gateway {
        &self.gateways[number]
    }

    /// kill -9.
    pub(super) fn kill(&mut self, number: usize) {
        let process = &mut self.gateways[number].process;
        process.signal(Signal::KILL);
        process.wait(Duration::from_secs(5));
        self.said.push(process.stderr());
    }

    /// Starts a killed one again, on the port it had.
    pub(super) fn restart(&mut self, number: usize) {
        let listen = self.gateways[number].base.trim_start_matches("http://").to_owned();
        let settings = Settings { listen, ..self.settings.clone() };
        self.gateways[number] = Gateway::with(self.dirs[number].path(), &self.sim, &settings);
    }

    /// How often a gateway found that the Redis had forgotten something.
    pub(super) fn losses_noticed(&self) -> usize {
        self.logs().lines().filter(|line| line.contains("Redis lost writes it had")).count()
    }

    /// What all of them said, in all their lives.
    pub(super) fn logs(&self) -> String {
        let living = self.gateways.iter().map(|gateway| gateway.process.stderr());
        self.said.iter().cloned().chain(living).collect()
    }
}
