//! The pools of a simulated world: declarations, announced demand, and account trouble that stops orders.

use std::{sync::Arc, time::Duration};

use domain::{
    actor::Actor,
    budget::Allowance,
    challenge::{Challenge, ChallengeParts, Kind},
    fingerprint::{Fingerprint, Identity},
    id::{Project, WorkerName},
    money::Money,
    pool::{Expectation, Level},
    site::PageUrl,
};
use engine::PoolWish;

use super::{Plan, World};

/// Running gateways have declared their pools after this time.
const DECLARED: Duration = Duration::from_secs(60);

impl Plan {
    /// At most one pool per kind, so that the kind identifies the pool of an order.
    pub fn pool_wishes(&self) -> Vec<PoolWish> {
        let budgets = self.budgets();
        let mut wishes = self.pool_challenges();
        for wish in &mut wishes {
            wish.budget = budgets.of_pool(&fingerprint(wish));
        }
        wishes
    }

    /// The pools without their budgets.
    pub(super) fn pool_challenges(&self) -> Vec<PoolWish> {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x0900_1000);
        let all = [Kind::Turnstile, Kind::RecaptchaV2].map(|kind| {
            let level = if rng.u32(0..3) > 0 { Level::Auto } else { Level::Fixed(rng.u32(1..=4)) };
            PoolWish {
                challenge: challenge(&kind, pooled_key(&kind)),
                project: Project::new("pool").unwrap(),
                level,
                most: rng.u32(4..=12),
                waste: [0, 50, 100, 300][rng.usize(0..4)],
                budget: Allowance::default(),
            }
        });
        let first = usize::from(rng.u32(0..3) == 0);
        if self.pools { all.into_iter().skip(first).collect() } else { Vec::new() }
    }
}

/// The sitekey of a kind that has a pool.
pub fn pooled_key(kind: &Kind) -> u32 {
    u32::from(*kind == Kind::RecaptchaV2)
}

pub fn challenge(kind: &Kind, sitekey: u32) -> Challenge {
    let draft = ChallengeParts {
        sitekey: Some(format!("key-{sitekey}")),
        pageurl: Some(PageUrl::parse("https://shop.example.com/login").unwrap()),
        ..ChallengeParts::default()
    };
    Challenge::new(kind.clone(), draft).unwrap()
}

pub fn fingerprint(wish: &PoolWish) -> Fingerprint {
    Fingerprint::of(&wish.challenge, Identity { ignores_proxy: false })
}

impl World {
    /// A client announces demand, correctly or not.
    pub async fn announce(self: Arc<Self>) {
        let mut rng = fastrand::Rng::with_seed(self.plan.seed ^ 0x0A22_0000);
        loop {
            self.sleep(Duration::from_millis(rng.u64(2_000..60_000))).await;
            let Some((engine, mut life)) = self.gateway(&mut rng) else { continue };
            let Ok(pools) = engine.pools().await else { continue };
            let Some(state) = pools.first() else { continue };
            let (id, kind) = (state.pool.id(), state.pool.order.challenge.kind().clone());
            let (count, soon) = (rng.u32(1..=5), Duration::from_secs(rng.u64(0..60)));
            // Recorded first, because a call whose reply is lost may have taken effect.
            self.announced.lock().unwrap().push((kind, count));
            let at = engine.clock().now().plus(soon);
            let by = Actor::process(WorkerName::new("admin").unwrap());
            tokio::select! {
                biased;
                _ = life.changed() => {}
                _ = engine.expect(id, Expectation { left: count, at }, by) => {}
            }
        }
    }

    /// The account is empty for a while.
    pub async fn empty_account(&self, rng: &mut fastrand::Rng) {
        if self.plan.balance {
            return;
        }
        self.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        self.monitor.record("the account is empty".into());
        self.sleep(Duration::from_millis(rng.u64(1_000..40_000))).await;
        self.account.with(|behaviour| behaviour.set_balance(Money::from_micros(1_000_000_000)));
        self.monitor.record("the account is full again".into());
    }

    /// Closes the pools, so that every solve can end.
    pub async fn close_pools(&self) {
        if !self.plan.pools {
            return;
        }
        self.sleep(DECLARED).await;
        for wish in self.plan.pool_wishes() {
            let now = self.clock.now();
            self.backend.store.set_pool(fingerprint(&wish), None, None, now).await.unwrap();
        }
    }
}
