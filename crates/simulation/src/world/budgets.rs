//! The budgets of a simulated world.

use domain::{
    budget::{Allowance, Budgets},
    id::WorkerName,
    money::Money,
};

use super::{Plan, pools};
use crate::books::PRICE;

const TEAMS: usize = 3;

impl Plan {
    /// Half of the seeds with budgets have three gateways, which compete for them.
    pub(super) fn competing(self) -> Self {
        if self.seed.is_multiple_of(6) { Self { gateways: 3, ..self } } else { self }
    }

    /// Every third seed has budgets. They are drawn apart, so that the other seeds play what they played before.
    pub fn budgets(&self) -> Budgets {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x00B0_D6E7);
        if !self.seed.is_multiple_of(3) {
            return Budgets::default();
        }
        let workers = (0..TEAMS).map(|number| (team(number), allowance(&mut rng)));
        let workers = workers.collect();
        let pools = self.pool_challenges();
        let pools = pools.iter().map(|wish| (pools::fingerprint(wish), allowance(&mut rng)));
        let pools = pools.collect();
        let is_limited = rng.bool();
        let account = if is_limited { allowance(&mut rng) } else { Allowance::default() };
        Budgets { account, workers, pools }
    }
}

pub fn team(number: usize) -> WorkerName {
    WorkerName::new(format!("team-{number}")).unwrap()
}

/// Money is limited only where every price is known, and that of reCAPTCHA and of pictures is not.
fn allowance(rng: &mut fastrand::Rng) -> Allowance {
    let mut one = || rng.bool().then(|| rng.u64(1..=15));
    let (day, month) = (one(), one());
    let is_priced = rng.u32(0..4) == 0;
    let mut cost = || is_priced.then(|| Money::from_micros(PRICE.micros() * rng.i64(1..=10)));
    let (cost_per_day, cost_per_month) = (cost(), cost());
    Allowance { solves_per_day: day, cost_per_day, solves_per_month: month, cost_per_month }
}
