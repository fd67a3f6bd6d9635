//! Tests that all shared stores have in common: several gateways on one server.

pub(crate) mod budgets;
pub(crate) mod concurrent_callers;
pub(crate) mod losses;
pub(crate) mod notifications;
pub(crate) mod pauses;
pub(crate) mod schedules;
pub(crate) mod skew;
pub(crate) mod texts;

use std::{future::Future, time::Duration};

use store_tests::World;
use stores::Backend;
use tokio::task::JoinSet;

use crate::connect;

/// One gateway: its own connection, and the clock and ids that all share.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) backend: Backend,
    pub(crate) world: World,
}

/// Much longer than any step here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Gateways with the same prefix and the same clock.
pub(crate) async fn gateways(url: &str, prefix: &str, count: usize) -> Vec<Gateway> {
    let mut all: Vec<Gateway> = Vec::new();
    for _ in 0..count {
        let backend = connect(url, prefix).await;
        let mut world = all.first().map_or_else(|| World::new(&backend), |one| one.world.clone());
        world.store = backend.store.clone();
        world.records = backend.records.clone();
        all.push(Gateway { backend, world });
    }
    all
}

/// Runs `count` futures at once, on all threads; each gets its number and one of the gateways in turn.
pub(crate) async fn all_at_once<F>(
    gateways: &[Gateway],
    count: usize,
    one: impl Fn(usize, Gateway) -> F,
) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let each = (0..count).map(|number| one(number, gateways[number % gateways.len()].clone()));
    each.collect::<JoinSet<F::Output>>().join_all().await
}
