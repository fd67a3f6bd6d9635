//! Disturbs the gateways of a world: crashes, pauses, cuts from the store, jumps of the wall clock.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use domain::{
    actor::Actor,
    id::WorkerName,
    ports::{DeadLetterFilter, Scope},
};
use engine::{BulkRequest, DeadLetterSelection};

use crate::world::{World, budgets::team};

impl World {
    pub async fn nemesis(self: Arc<Self>) {
        let mut rng = fastrand::Rng::with_seed(self.plan.seed ^ 0x0BAD_CAFE);
        loop {
            self.sleep(Duration::from_millis(rng.u64(300..9_000))).await;
            let i = rng.usize(0..self.gateways.len());
            match rng.u32(0..if self.plan.pools { 6 } else { 5 }) {
                0 if self.plan.crashes => self.crash(i, &mut rng).await,
                1 if self.plan.pauses => self.pause(i, &mut rng),
                2 if self.plan.cuts => self.cut(i, &mut rng).await,
                3 if self.plan.jumps => {
                    let jump = Duration::from_secs(rng.u64(0..30));
                    self.wall.jump(jump);
                    self.monitor.record(format!("the wall clock jumps ahead by {jump:?}"));
                }
                4 if self.plan.callbacks => {
                    let down = self.receiver.is_down.load(Ordering::SeqCst);
                    self.receiver.is_down.store(!down, Ordering::SeqCst);
                    let state = if down { "up" } else { "down" };
                    self.monitor.record(format!("the callback receiver is {state}"));
                }
                5 => self.empty_account(&mut rng).await,
                _ => {}
            }
        }
    }

    /// An operator that revives and purges dead letters, not always carefully.
    pub async fn operate(self: Arc<Self>) {
        let mut rng = fastrand::Rng::with_seed(self.plan.seed ^ 0x0B5E_55ED);
        let budgets = self.plan.budgets();
        loop {
            self.sleep(Duration::from_millis(rng.u64(1_000..40_000))).await;
            let Some((engine, mut life)) = self.gateway(&mut rng) else { continue };
            let bulk = BulkRequest {
                which: DeadLetterSelection::Matching(DeadLetterFilter::open(Scope::All, 100)),
                by: Actor::process(WorkerName::new("admin").unwrap()),
                rate: 100,
                dry_run: false,
                allowances: (0..3).map(|n| (team(n), budgets.of_worker(&team(n)))).collect(),
            };
            // The store may be unreachable and the gateway may crash: the operator retries later.
            tokio::select! {
                biased;
                _ = life.changed() => {}
                _ = engine.revive(&bulk) => {}
            }
            if rng.u32(0..8) == 0 {
                drop(engine.purge(&bulk).await);
            }
        }
    }

    async fn crash(&self, i: usize, rng: &mut fastrand::Rng) {
        {
            let mut gateway = self.gateways[i].lock().unwrap();
            let Some(engine) = gateway.engine.take() else { return };
            self.monitor.check_health(i, &engine.health());
            engine.crash();
            gateway.record.crashed.store(true, std::sync::atomic::Ordering::SeqCst);
            gateway.life.send_modify(|life| *life += 1);
        }
        *self.crashes.lock().unwrap() += 1;
        self.monitor.record(format!("gateway {i} crashed"));
        self.sleep(Duration::from_millis(rng.u64(10..5_000))).await;
        self.boot(i).await;
    }

    fn pause(&self, i: usize, rng: &mut fastrand::Rng) {
        let until = self.clock.now().plus(Duration::from_millis(rng.u64(100..60_000)));
        self.gateways[i].lock().unwrap().gate.pause(until);
        self.monitor.record(format!("gateway {i} is paused until {until}"));
    }

    async fn cut(&self, i: usize, rng: &mut fastrand::Rng) {
        let gate = Arc::clone(&self.gateways[i].lock().unwrap().gate);
        gate.cut.store(true, std::sync::atomic::Ordering::SeqCst);
        self.monitor.record(format!("gateway {i} is cut off from the store"));
        self.sleep(Duration::from_millis(rng.u64(100..30_000))).await;
        gate.cut.store(false, std::sync::atomic::Ordering::SeqCst);
        self.monitor.record(format!("gateway {i} reaches the store again"));
    }
}
