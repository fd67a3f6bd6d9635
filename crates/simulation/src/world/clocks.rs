//! Which gateways have a wrong clock, and how they get a right one at the end.

use std::{sync::atomic::Ordering, time::Duration};

use super::World;

impl World {
    /// How far the clock of a gateway that starts is ahead of all others: more than is tolerated, or nothing.
    pub(super) fn clock_error(&self, seed: u64, life: u64) -> Duration {
        let is_restart = life > 1 && !self.is_closing.load(Ordering::SeqCst);
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xC10C);
        if !self.plan.wrong_clocks || !is_restart || self.plan.gateways == 1 || rng.bool() {
            return Duration::ZERO;
        }
        Duration::from_secs(rng.u64(6..3_600))
    }

    /// Ends the gateways whose clock is ahead, so that they start again with a right one.
    pub(super) fn end_wrong_clocks(&self) {
        for (i, gateway) in self.gateways.iter().enumerate() {
            let mut gateway = gateway.lock().unwrap();
            if !gateway.is_ahead {
                continue;
            }
            if let Some(engine) = gateway.engine.take() {
                assert!(!engine.health().ready, "gateway {i} is ready with a wrong clock");
                engine.crash();
                gateway.record.crashed.store(true, Ordering::SeqCst);
                gateway.life.send_modify(|life| *life += 1);
            }
        }
    }
}
