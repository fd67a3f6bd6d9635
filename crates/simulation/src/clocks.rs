//! The clocks of the simulated machines: the wall clock, which may jump ahead, and the clock of each gateway, which reads it at
//! its start.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use domain::{ports::Clock, time::Timestamp};
use simulator::VirtualClock;

/// What the machines agree on, the store's server included.
#[derive(Debug)]
pub struct WallClock {
    true_time: VirtualClock,
    ahead: Mutex<Duration>,
}

/// The clock of a gateway. It does not notice jumps of the wall clock until it catches up.
#[derive(Debug)]
pub(crate) struct GatewayClock {
    wall: Arc<WallClock>,
    ahead: Mutex<Duration>,
    /// How far this machine's own wall clock is off, so that catching up does not help.
    off: Duration,
}

impl WallClock {
    pub fn new(start: tokio::time::Instant) -> Self {
        Self { true_time: VirtualClock::new(start, Duration::ZERO), ahead: Mutex::default() }
    }

    /// How far it has jumped ahead so far.
    pub fn ahead(&self) -> Duration {
        *self.ahead.lock().unwrap()
    }

    pub fn jump(&self, by: Duration) {
        *self.ahead.lock().unwrap() += by;
    }
}

impl GatewayClock {
    /// On a machine whose clock is ahead of all others by `off`.
    pub(crate) fn start(wall: &Arc<WallClock>, off: Duration) -> Self {
        Self { wall: Arc::clone(wall), ahead: Mutex::new(wall.ahead() + off), off }
    }
}

#[async_trait]
impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        self.true_time.now().plus(self.ahead())
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.true_time.sleep_until(at.minus(self.ahead())).await;
    }
}

#[async_trait]
impl Clock for GatewayClock {
    fn now(&self) -> Timestamp {
        self.wall.true_time.now().plus(*self.ahead.lock().unwrap())
    }

    async fn sleep_until(&self, at: Timestamp) {
        let ahead = *self.ahead.lock().unwrap();
        self.wall.true_time.sleep_until(at.minus(ahead)).await;
    }

    fn catch_up(&self) {
        *self.ahead.lock().unwrap() = self.wall.ahead() + self.off;
    }
}
