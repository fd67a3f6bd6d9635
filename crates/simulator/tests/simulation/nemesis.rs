//! What happens to the gateways of a world: crashes, pauses, cuts from the store, jumps of the wall clock.

use std::{sync::Arc, time::Duration};

use crate::world::World;

impl World {
    pub(crate) async fn nemesis(self: Arc<Self>) {
        let mut rng = fastrand::Rng::with_seed(self.plan.seed ^ 0x0BAD_CAFE);
        loop {
            self.sleep(Duration::from_millis(rng.u64(300..9_000))).await;
            let i = rng.usize(0..self.gateways.len());
            match rng.u32(0..4) {
                0 if self.plan.crashes => self.crash(i, &mut rng).await,
                1 if self.plan.pauses => self.pause(i, &mut rng),
                2 if self.plan.cuts => self.cut(i, &mut rng).await,
                3 if self.plan.jumps => {
                    *self.wall.lock().unwrap() += Duration::from_secs(rng.u64(0..30));
                }
                _ => {}
            }
        }
    }

    async fn crash(&self, i: usize, rng: &mut fastrand::Rng) {
        {
            let mut gateway = self.gateways[i].lock().unwrap();
            let Some(engine) = gateway.engine.take() else { return };
            engine.crash();
            gateway.record.crashed.store(true, std::sync::atomic::Ordering::SeqCst);
            gateway.life.send_modify(|life| *life += 1);
        }
        *self.crashes.lock().unwrap() += 1;
        self.sleep(Duration::from_millis(rng.u64(10..5_000))).await;
        self.boot(i).await;
    }

    fn pause(&self, i: usize, rng: &mut fastrand::Rng) {
        let until = self.clock.now().plus(Duration::from_millis(rng.u64(100..60_000)));
        self.gateways[i].lock().unwrap().gate.pause(until);
    }

    async fn cut(&self, i: usize, rng: &mut fastrand::Rng) {
        let gate = Arc::clone(&self.gateways[i].lock().unwrap().gate);
        gate.cut.store(true, std::sync::atomic::Ordering::SeqCst);
        self.sleep(Duration::from_millis(rng.u64(100..30_000))).await;
        gate.cut.store(false, std::sync::atomic::Ordering::SeqCst);
    }
}
