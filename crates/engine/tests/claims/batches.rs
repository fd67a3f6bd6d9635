//! One poll call for many tasks.

use std::sync::Arc;

use engine::{Engine, LearnedConfig};

use crate::{
    gateway::{World, open, token},
    provider::{Call, ScriptedProvider},
};

fn learned(batches: bool) -> World {
    let mut world = World::new();
    let mut provider = ScriptedProvider::new(Arc::clone(&world.clock));
    provider.batches = batches;
    world.provider = Arc::new(provider);
    world.config.polling = LearnedConfig::default().into();
    world
        .config
        .prices
        .kinds
        .insert(domain::challenge::Kind::Turnstile, domain::money::Money::ZERO);
    world
}

async fn serve(engine: &Engine, keys: [&str; 4]) {
    let mut ids = Vec::new();
    for key in keys {
        ids.push(open(engine, key).await);
    }
    for id in ids {
        token(engine, id).await;
    }
}

fn batch_polls(world: &World) -> Vec<usize> {
    let batch = |(_, call)| match call {
        Call::PollMany(tasks) => Some(tasks),
        Call::Submit(_) | Call::Poll(_) | Call::Report(..) => None,
    };
    world.provider.calls().into_iter().filter_map(batch).collect()
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_moment_are_polled_in_one_call() {
    let world = learned(true);
    let engine = world.gateway(1).await;
    serve(&engine, ["a", "b", "c", "d"]).await;
    assert_eq!(batch_polls(&world), [4]);
    assert_eq!(world.provider.polls(), []);
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_batch_polls_is_tried_once_also_after_a_restart() {
    let world = learned(false);
    let engine = world.gateway(1).await;
    serve(&engine, ["a", "b", "c", "d"]).await;
    assert_eq!(batch_polls(&world).len(), 1);
    assert_eq!(world.provider.polls().len(), 4);
    engine.drain().await;
    serve(&world.gateway(2).await, ["e", "f", "g", "h"]).await;
    assert_eq!(batch_polls(&world).len(), 1);
}
