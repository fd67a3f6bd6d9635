//! Keeps pools filled: standing orders for tokens that claims can use at once. One gateway controls each pool. The
//! controller runs at every arrival and every second, sets the pool's target from its demand, and orders what is missing
//! while slots are free and no circuit breaker is open.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use domain::{
    actor::Actor,
    budget::Allowance,
    challenge::{Challenge, Sharing},
    declarations::{Declarations, POOL, SiteRefusal},
    fingerprint::{Fingerprint, Identity},
    id::{Project, SolveId, WorkerName},
    pool::{Expectation, Level, Pool, PoolId, StandingOrder, Target, TargetInputs, Timing, Why},
    ports::{PoolState, RefillRequest, StoreError},
    time::Timestamp,
    token::MIN_LEFT,
};
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::{Engine, Shared, polling::Family};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolWish {
    pub challenge: Challenge,
    /// The project that refills are charged to.
    pub project: Project,
    pub level: Level,
    /// The largest target.
    pub most: u32,
    /// Tokens that may expire unused, of a thousand served.
    pub waste: u32,
    /// What its refills may cost.
    pub budget: Allowance,
}

/// Why there is no such pool. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum PoolRefusal {
    #[error(transparent)]
    Site(#[from] SiteRefusal),
    /// Answers of the kind are shared or bound to their caller.
    #[error("tokens of kind {0} are not kept ready: only those that any claim can use once are")]
    Kind(String),
    #[error("there is no pool {0}")]
    Unknown(PoolId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The challenges that have a pool, as far as this process knows, and the hint that one of them was claimed.
#[derive(Debug, Default)]
pub(crate) struct PoolHints {
    known: RwLock<BTreeSet<Fingerprint>>,
    arrival: Notify,
}

const EVERY: Duration = Duration::from_secs(1);
const EVERY_WITHOUT_POOLS: Duration = Duration::from_secs(10);
/// An order that finds no slot within this time is cancelled, because the demand may have changed.
const WANTED_FOR: Duration = Duration::from_secs(60);
const MAX_ORDERS: usize = 50;

pub(crate) async fn run(shared: Arc<Shared>) {
    let (mut every, mut declared) = (EVERY, false);
    loop {
        if !declared {
            let opened = open_declared(&shared).await;
            declared = opened.is_ok();
            if let Err(error) = opened {
                tracing::warn!(%error, "failed to open declared pools, retrying");
            }
        }
        tokio::select! {
            biased;
            () = shared.maintenance.pools.arrival.notified() => {}
            more = shared.pause(every) => if !more { return },
        }
        match shared.ports.records.pools(shared.now()).await {
            Ok(pools) => {
                every = if pools.is_empty() && declared { EVERY_WITHOUT_POOLS } else { EVERY };
                let known = pools.iter().map(|state| state.pool.fingerprint).collect();
                *shared.maintenance.pools.known.write() = known;
                for state in &pools {
                    control(&shared, state).await;
                }
            }
            Err(error) => tracing::warn!(%error, "failed to read pools"),
        }
    }
}

// --- what operators do ---

impl Engine {
    /// Opens a pool, or changes it.
    pub async fn set_pool(&self, wish: PoolWish, by: Actor) -> Result<Pool, PoolRefusal> {
        let pool = write(&self.0, wish, Some(by)).await?;
        self.0.maintenance.pools.arrival.notify_one();
        Ok(pool)
    }

    /// Closes a pool. Its tokens stay in stock and serve later claims.
    pub async fn close_pool(&self, id: PoolId, by: Actor) -> Result<Pool, PoolRefusal> {
        let fingerprint = find(&self.0, id).await?.pool.fingerprint;
        let closed = self.0.ports.store.set_pool(fingerprint, None, Some(by), self.0.now()).await?;
        closed.ok_or(PoolRefusal::Unknown(id))
    }

    /// Announces demand.
    pub async fn expect(
        &self,
        id: PoolId,
        expectation: Expectation,
        by: Actor,
    ) -> Result<Pool, PoolRefusal> {
        let fingerprint = find(&self.0, id).await?.pool.fingerprint;
        let (store, now) = (&self.0.ports.store, self.0.now());
        let pool = store.expect(fingerprint, expectation, Some(by), now).await?;
        self.0.maintenance.pools.arrival.notify_one();
        pool.ok_or(PoolRefusal::Unknown(id))
    }
}

async fn find(shared: &Shared, id: PoolId) -> Result<PoolState, PoolRefusal> {
    let pools = shared.ports.records.pools(shared.now()).await?;
    pools.into_iter().find(|state| state.pool.id() == id).ok_or(PoolRefusal::Unknown(id))
}

/// Opens the pools that the configuration declares and closes those it no longer declares.
async fn open_declared(shared: &Shared) -> Result<(), StoreError> {
    let mut declared = BTreeSet::new();
    for wish in shared.config.pools.clone() {
        match write(shared, wish, None).await {
            Ok(pool) => drop(declared.insert(pool.fingerprint)),
            Err(PoolRefusal::Store(error)) => return Err(error),
            Err(refusal) => tracing::error!(%refusal, "declared pool rejected"),
        }
    }
    for state in shared.ports.records.pools(shared.now()).await? {
        let fingerprint = state.pool.fingerprint;
        if state.pool.order.is_declared && !declared.contains(&fingerprint) {
            shared.ports.store.set_pool(fingerprint, None, None, shared.now()).await?;
        }
    }
    Ok(())
}

/// Without an admin, the configuration declares the pool.
async fn write(shared: &Shared, wish: PoolWish, by: Option<Actor>) -> Result<Pool, PoolRefusal> {
    let kind = wish.challenge.kind();
    if kind.sharing() != Sharing::Exclusive {
        return Err(PoolRefusal::Kind(kind.name().to_owned()));
    }
    let terms = shared.declarations().check(&wish.challenge, &buyer(), shared.now())?;
    let fingerprint = Fingerprint::of(&wish.challenge, terms.identity);
    let order = StandingOrder {
        challenge: Arc::new(wish.challenge.clone()),
        worker: buyer(),
        project: wish.project,
        basis: terms.basis,
        level: wish.level,
        most: wish.most,
        waste: wish.waste,
        is_declared: by.is_none(),
    };
    let pool = shared.ports.store.set_pool(fingerprint, Some(order), by, shared.now()).await?;
    Ok(pool.expect("the store returns the pool it has just set"))
}

/// The worker in whose name refills are bought.
fn buyer() -> WorkerName {
    WorkerName::new(POOL).expect("a valid worker name")
}

// --- the controller ---

/// Sets the pool's target and orders what is missing.
async fn control(shared: &Shared, state: &PoolState) {
    let (scheduler, pool) = (&shared.scheduler, &state.pool);
    if scheduler.breakers.troubles().next().is_some() || scheduler.is_draining() {
        return;
    }
    let order = &pool.order;
    let pauses = shared.maintenance.pauses.in_force();
    // The store orders nothing for it either.
    if pauses.stopping(&order.challenge, [&order.worker]).is_some() {
        return;
    }
    let target = aim(shared, pool);
    let spare = state.stock.len() + state.coming;
    let missing = usize::try_from(target.level).unwrap_or(usize::MAX).saturating_sub(spare);
    let holder = scheduler.lease.holder();
    if pool.controller == Some(holder) && missing == 0 && pool.target == target {
        return;
    }
    let busy = scheduler.slots.used() + scheduler.ready();
    let free = scheduler.slots.available().saturating_sub(busy);
    let count = missing.min(free).min(MAX_ORDERS);
    let budgets = shared.budgets();
    let refill = RefillRequest {
        pool: pool.fingerprint,
        holder,
        target,
        solves: (0..count).map(|_| SolveId::draw(&*shared.ports.chance)).collect(),
        wanted_until: shared.now().plus(WANTED_FOR),
        price: shared.price_of(&pool.order.challenge),
        budget: budgets.of_pool(&pool.fingerprint),
        account: budgets.account,
    };
    match shared.ports.store.refill(refill, shared.now()).await {
        Ok(refilled) if !refilled.opened.is_empty() => scheduler.wake(),
        Ok(_) => {}
        Err(error) => tracing::warn!(pool = %pool.id(), %error, "failed to order pool refills"),
    }
}

fn aim(shared: &Shared, pool: &Pool) -> Target {
    let challenge = &pool.order.challenge;
    if shared.declarations().check(challenge, &pool.order.worker, shared.now()).is_err() {
        return Target { level: 0, why: Why::Undeclared };
    }
    let polling = &shared.config.polling;
    let timing = polling.memory.timing(&Family::of(challenge.kind(), challenge));
    let usable = shared.config.token_lifetime(challenge.kind()).usable().saturating_sub(MIN_LEFT);
    pool.aim(&TargetInputs {
        now: shared.now(),
        timing: Timing { mean: timing.mean, q99: timing.q99 },
        // Polling finds a token a little after it was made.
        life: usable.saturating_sub(polling.min_gap),
        waste: f64::from(pool.order.waste) / 1000.0,
        most: pool.order.most,
    })
}

// === impl PoolWish ===

impl PoolWish {
    /// The fingerprint under these declarations; `None` when no site covers its page.
    pub(crate) fn fingerprint(&self, declared: &Declarations) -> Option<Fingerprint> {
        let site = declared.site(self.challenge.pageurl()?, Timestamp::default()).ok()?;
        let identity = Identity { ignores_proxy: site.key_ignores_proxy };
        Some(Fingerprint::of(&self.challenge, identity))
    }
}

// === impl PoolHints ===

impl PoolHints {
    /// A claim arrived. If its challenge has a pool, the controller runs at once.
    pub(crate) fn record_arrival(&self, fingerprint: &Fingerprint) {
        if self.known.read().contains(fingerprint) {
            self.arrival.notify_one();
        }
    }
}
