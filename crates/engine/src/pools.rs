//! Standing orders: one controller for each pool, whoever holds it. It looks at every arrival and every second, aims at
//! what the demand calls for, and orders what is missing, while slots are free and nothing is in trouble.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use domain::{
    challenge::{Challenge, Sharing},
    fingerprint::{Fingerprint, Identity},
    id::{Project, SolveId, WorkerName},
    pool::{DemandAsk, Expectation, Level, Pool, PoolId, StandingOrder, Target, Timing, Why},
    ports::{LearnedMargin, PoolState, Refill, StoreError},
    site::SiteRefusal,
    time::Timestamp,
    token::MIN_LEFT,
};

use crate::{Engine, Inner, polling::Family};

/// A pool as somebody wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolWish {
    /// What has to be solved.
    pub challenge: Challenge,
    /// What refills are charged to.
    pub project: Project,
    /// How many tokens.
    pub level: Level,
    /// Never more.
    pub most: u32,
    /// Tokens that may die unused, of a thousand served.
    pub waste: u32,
}

/// Why there is no such pool. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum PoolRefusal {
    /// The page is not declared.
    #[error(transparent)]
    Site(#[from] SiteRefusal),
    /// Answers of the kind are shared or bound to their caller.
    #[error("tokens of kind {0} are not kept ready: only those that any claim can use once are")]
    Kind(String),
    /// There is none.
    #[error("there is no pool {0}")]
    Unknown(PoolId),
    /// The store is away.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Refills are bought in this name.
const BUYER: &str = "pool";
/// Without a hint, pools are looked at this often; without pools, seldom.
const EVERY: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(10);
/// An order that found no slot by then is given up: the demand may have changed.
const WANTED_FOR: Duration = Duration::from_secs(60);
/// So many are ordered at once.
const MOST_ORDERS: usize = 50;

/// Runs until the driver is done.
pub(crate) async fn run(inner: Arc<Inner>) {
    if !inner.config.keeps_pools {
        return;
    }
    let (mut every, mut declared) = (EVERY, false);
    loop {
        if !declared {
            let opened = inner.declare_pools().await;
            declared = opened.is_ok();
            if let Err(error) = opened {
                tracing::warn!(%error, "failed to open declared pools, retrying");
            }
        }
        tokio::select! {
            biased;
            () = inner.pool_hint.notified() => {}
            more = inner.pause(every) => if !more { return },
        }
        match inner.ports.records.pools(inner.now()).await {
            Ok(pools) => {
                every = if pools.is_empty() && declared { SELDOM } else { EVERY };
                let known = pools.iter().map(|state| state.pool.fingerprint).collect();
                *inner.pooled.write().expect("no holder of this lock can panic") = known;
                for state in &pools {
                    inner.control(state).await;
                }
            }
            Err(error) => tracing::warn!(%error, "failed to read pools"),
        }
    }
}

impl Engine {
    /// Opens a pool, or changes it.
    pub async fn set_pool(&self, wish: PoolWish) -> Result<Pool, PoolRefusal> {
        let pool = self.0.set_pool(wish, false).await?;
        self.0.pool_hint.notify_one();
        Ok(pool)
    }

    /// Closes a pool; its tokens serve whoever comes.
    pub async fn close_pool(&self, id: PoolId) -> Result<Pool, PoolRefusal> {
        let fingerprint = self.find_pool(id).await?.pool.fingerprint;
        let closed = self.0.ports.store.set_pool(fingerprint, None, self.0.now()).await?;
        closed.ok_or(PoolRefusal::Unknown(id))
    }

    /// Announces demand: so many claims from then on.
    pub async fn expect(&self, id: PoolId, count: u32, at: Timestamp) -> Result<Pool, PoolRefusal> {
        let fingerprint = self.find_pool(id).await?.pool.fingerprint;
        let expectation = Expectation { left: count, at };
        let told = self.0.ports.store.expect(fingerprint, expectation, self.0.now()).await?;
        self.0.pool_hint.notify_one();
        told.ok_or(PoolRefusal::Unknown(id))
    }

    /// Pools and what they have.
    pub async fn pools(&self) -> Result<Vec<PoolState>, StoreError> {
        self.records().pools(self.0.now()).await
    }

    /// What was learned about how early tokens have to be used.
    pub async fn margins(&self) -> Result<Vec<LearnedMargin>, StoreError> {
        self.records().margins().await
    }

    async fn find_pool(&self, id: PoolId) -> Result<PoolState, PoolRefusal> {
        let found = self.pools().await?.into_iter().find(|state| state.pool.id() == id);
        found.ok_or(PoolRefusal::Unknown(id))
    }
}

impl Inner {
    /// Opens what the configuration declares and closes what it declares no more.
    async fn declare_pools(&self) -> Result<(), StoreError> {
        let mut declared = BTreeSet::new();
        for wish in self.config.pools.clone() {
            match self.set_pool(wish, true).await {
                Ok(pool) => drop(declared.insert(pool.fingerprint)),
                Err(PoolRefusal::Store(error)) => return Err(error),
                Err(refusal) => tracing::error!(%refusal, "declared pool rejected"),
            }
        }
        for state in self.ports.records.pools(self.now()).await? {
            let fingerprint = state.pool.fingerprint;
            if state.pool.order.is_declared && !declared.contains(&fingerprint) {
                self.ports.store.set_pool(fingerprint, None, self.now()).await?;
            }
        }
        Ok(())
    }

    async fn set_pool(&self, wish: PoolWish, is_declared: bool) -> Result<Pool, PoolRefusal> {
        let kind = wish.challenge.kind();
        let Some(page) = wish.challenge.pageurl().filter(|_| kind.sharing() == Sharing::Exclusive)
        else {
            return Err(PoolRefusal::Kind(kind.name().to_owned()));
        };
        let sites = Arc::clone(&self.sites.read().expect("no holder of this lock can panic"));
        let site = sites.check(page, self.now())?;
        let identity = Identity { ignores_proxy: site.key_ignores_proxy };
        let fingerprint = Fingerprint::of(&wish.challenge, identity);
        let order = StandingOrder {
            challenge: Arc::new(wish.challenge.clone()),
            worker: WorkerName::new(BUYER).expect("a plain name"),
            project: wish.project,
            basis: Arc::clone(&site.basis),
            level: wish.level,
            most: wish.most,
            waste: wish.waste,
            is_declared,
        };
        let pool = self.ports.store.set_pool(fingerprint, Some(order), self.now()).await?;
        Ok(pool.expect("a pool that was just set is there"))
    }

    /// A claim for one of the pools came in.
    pub(crate) fn hint_pool(&self, fingerprint: &Fingerprint) {
        let pooled = self.pooled.read().expect("no holder of this lock can panic");
        if pooled.contains(fingerprint) {
            self.pool_hint.notify_one();
        }
    }

    /// Aims, and orders what is missing.
    async fn control(&self, state: &PoolState) {
        let pool = &state.pool;
        if self.breakers.troubles().next().is_some() || self.is_draining() {
            return;
        }
        let target = self.aim(pool);
        let spare = state.stock.len() + state.coming;
        let missing = usize::try_from(target.level).unwrap_or(usize::MAX).saturating_sub(spare);
        let is_ours = pool.controller == Some(self.holder());
        if is_ours && missing == 0 && pool.target == target {
            return;
        }
        let busy = self.places.used() + self.health.queued();
        let free = self.places.limit().saturating_sub(busy);
        let count = missing.min(free).min(MOST_ORDERS);
        let ask = Refill {
            pool: pool.fingerprint,
            holder: self.holder(),
            target,
            solves: (0..count)
                .map(|_| SolveId::draw(&*self.ports.chance, &pool.fingerprint))
                .collect(),
            wanted_until: self.now().plus(WANTED_FOR),
            price: self.config.prices.get(pool.order.challenge.kind()).copied(),
        };
        match self.ports.store.refill(ask, self.now()).await {
            Ok(refilled) if !refilled.opened.is_empty() => self.wake.notify_one(),
            Ok(_) => {}
            Err(error) => tracing::warn!(pool = %pool.id(), %error, "failed to order pool refills"),
        }
    }

    fn aim(&self, pool: &Pool) -> Target {
        let challenge = &pool.order.challenge;
        let sites = Arc::clone(&self.sites.read().expect("no holder of this lock can panic"));
        let is_declared = |page| sites.check(page, self.now()).is_ok();
        if !challenge.pageurl().is_some_and(is_declared) {
            return Target { level: 0, why: Why::Undeclared };
        }
        let family = Family {
            kind: challenge.kind().clone(),
            proxied: challenge.params().contains_key("proxy"),
        };
        let timing = self.config.polling.timing(&family);
        let usable = self.config.shelf_life(challenge.kind()).usable().saturating_sub(MIN_LEFT);
        pool.aim(&DemandAsk {
            now: self.now(),
            timing: Timing { mean: timing.mean, q99: timing.q99 },
            // A token is found a little after it was made.
            life: usable.saturating_sub(self.config.polling.min_gap()),
            waste: f64::from(pool.order.waste) / 1000.0,
            most: pool.order.most,
        })
    }
}
