//! An operator that pauses and resumes submissions at random, and withdraws and declares the site.

use std::{sync::Arc, time::Duration};

use domain::{
    actor::{Actor, ActorRole},
    id::WorkerName,
    pause::PauseScope,
    ports::PauseRequest,
};
use engine::Engine;

use crate::{ports::Bug, world::World};

fn operator() -> Actor {
    let name = WorkerName::new("operator").unwrap();
    Actor { name, role: ActorRole::Operator, address: None }
}

impl World {
    pub async fn stop_and_resume(self: Arc<Self>) {
        let mut rng = fastrand::Rng::with_seed(self.plan.seed ^ 0x0570_9000);
        loop {
            self.sleep(Duration::from_millis(rng.u64(500..10_000))).await;
            let length = Duration::from_millis(rng.u64(100..15_000));
            let scope = match rng.u32(0..5) {
                0 | 1 => {
                    self.set_withdrawn(true);
                    self.sleep(length).await;
                    self.set_withdrawn(false);
                    continue;
                }
                2 => PauseScope::site("*.example.com").unwrap(),
                3 => {
                    PauseScope::Worker(WorkerName::new(format!("team-{}", rng.u32(0..3))).unwrap())
                }
                _ => PauseScope::Everything,
            };
            self.set_pause(&mut rng, &scope, true).await;
            self.sleep(length).await;
            self.set_pause(&mut rng, &scope, false).await;
        }
    }

    /// Through any gateway; the store may be unreachable and the gateway may crash, and the pause may be in force then.
    async fn set_pause(&self, rng: &mut fastrand::Rng, scope: &PauseScope, paused: bool) {
        for _ in 0..5 {
            if let Some((engine, mut life)) = self.gateway(rng) {
                tokio::select! {
                    biased;
                    _ = life.changed() => {}
                    done = engine.set_pause(scope.clone(), paused, operator()) => {
                        if done.is_ok() {
                            return;
                        }
                    }
                }
            }
            self.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Withdraws the site at all gateways at once, or declares it again.
    fn set_withdrawn(&self, withdrawn: bool) {
        self.monitor.set_withdrawn(withdrawn);
        for gateway in &self.gateways {
            if let Some(engine) = &gateway.lock().unwrap().engine {
                self.declare(engine);
            }
        }
    }

    /// Has a gateway go by the declarations in force.
    pub fn declare(&self, engine: &Engine) {
        if self.plan.bug != Some(Bug::KeepsDeclarations) {
            engine.set_declarations(self.declarations());
        }
    }

    /// Everything goes on.
    pub async fn end_stops(&self) {
        if !self.plan.stops {
            return;
        }
        self.set_withdrawn(false);
        let store = &self.backend.store;
        for pause in store.pauses().await.unwrap().iter() {
            let request =
                PauseRequest { scope: pause.scope.clone(), paused: false, by: operator() };
            store.set_pause(request, self.clock.now()).await.unwrap();
        }
    }
}
