//! Several gateways on one server, as the tests of all shared stores see them.

pub(crate) mod bells;
pub(crate) mod crowds;
pub(crate) mod skew;
pub(crate) mod texts;
pub(crate) mod turns;

use std::{future::Future, time::Duration};

use store_tests::World;
use stores::Backend;
use tokio::task::JoinSet;

use crate::connect;

/// One gateway: its own connection, and the world all of them share.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) backend: Backend,
    pub(crate) world: World,
}

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Gateways with the same keys and the same clock.
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

/// Runs `count` of them at once, on all threads there are; each is given its number and, in turn, one of the gateways.
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
