//! Money is spent only on writes that a replica has: what a gateway finds out while it waits for one.

#![expect(
    clippy::disallowed_methods,
    reason = "a test outside the server under test, which fails by panicking"
)]

use std::time::Duration;

use domain::{
    claim::Claim,
    declarations::Guard,
    id::Nonce,
    lease::Lease,
    ports::{Advanced, StoreError, StoreResult},
    solve::Decision,
};
use store_tests::{
    World,
    servers::{FaultProxy, RedisOptions, RedisServer},
};
use stores::Backend;
use tokio::task::JoinHandle;

use super::concurrent_callers::calls;
use crate::gateways::losses::until_back;

/// A master, its replica, and a gateway that reaches the master through a proxy.
struct Replicated {
    master: RedisServer,
    replica: RedisServer,
    proxy: FaultProxy,
    backend: Backend,
    world: World,
}

/// Intents that are tried until one is seen while it waits for a replica. That takes half a second.
const TRIES: usize = 10;

impl Replicated {
    async fn start() -> Self {
        let master = RedisServer::start(&RedisOptions::default());
        let options = RedisOptions { replica_of: Some(master.port()), ..RedisOptions::default() };
        let replica = RedisServer::start(&options);
        let proxy = FaultProxy::start(master.port());
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        let backend = crate::connect(&url, "replicas").await;
        let world = World::new(&backend);
        Self { master, replica, proxy, backend, world }
    }

    async fn leases(&self) -> Vec<(Claim, Lease)> {
        let mut leases = Vec::new();
        for number in 0..TRIES {
            let claim = self.world.open(self.world.turnstile(&format!("s{number}"))).await;
            let lease = self.world.lease_of(&claim).await;
            leases.push((claim, lease));
        }
        self.master.cli(&["WAIT", "1", "1000"]);
        leases
    }

    /// From now on the replica gets no writes, and the server still counts it among its own for a while.
    fn detach_replica(&self) {
        self.replica.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    }

    /// Writes an intent, and returns as soon as its gateway waits for a replica; `None` if that was over too soon.
    async fn intend(&self, lease: &Lease) -> Option<JoinHandle<StoreResult<Advanced>>> {
        let (store, lease, now) = (self.backend.store.clone(), lease.clone(), self.world.now());
        let nonce = Nonce::from_number(lease.solve.id.number());
        let intent = Decision::Intend { guard: Guard::open(), nonce };
        let advance = tokio::spawn(async move { store.advance(&lease, intent, now).await });
        while !advance.is_finished() {
            if self.is_waiting() {
                return Some(advance);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    /// Whether a connection waits for a replica.
    fn is_waiting(&self) -> bool {
        self.master.cli(&["info", "clients"]).contains("blocked_clients:1")
    }
}

/// The reply to the commit arrived, and the server died before it answered `WAIT`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_took_over_without_the_intent_does_not_confirm_it() {
    let all = Replicated::start().await;
    let leases = all.leases().await;
    all.detach_replica();
    for (_, lease) in &leases {
        let Some(advance) = all.intend(lease).await else { continue };
        all.replica.cli(&["REPLICAOF", "NO", "ONE"]);
        all.proxy.lead_to(all.replica.port());
        all.master.kill();
        let intent = advance.await.expect("it does not panic");
        assert!(matches!(intent, Err(StoreError::Unavailable { .. })), "confirmed: {intent:?}");
        return;
    }
    panic!("no intent was seen while it waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_go_on_while_an_intent_waits_for_a_replica() {
    let all = Replicated::start().await;
    let leases = all.leases().await;
    all.detach_replica();
    for (claim, lease) in &leases {
        let Some(advance) = all.intend(lease).await else { continue };
        all.backend.store.find_claim(claim.id).await.expect("the server is up");
        let is_waiting = all.is_waiting();
        advance.await.expect("it does not panic").expect_err("no replica has it");
        if is_waiting {
            return;
        }
    }
    panic!("every read waited for the writer");
}

/// The old master goes on as a replica of the new one. It refuses the writer and would answer the readers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_follow_the_writer_to_the_new_master() {
    let all = Replicated::start().await;
    let claim = all.world.open(all.world.turnstile("a")).await;
    all.master.cli(&["WAIT", "1", "1000"]);
    all.world.find(&claim).await;
    all.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    all.proxy.lead_to(all.replica.port());
    all.master.cli(&["REPLICAOF", "127.0.0.1", &all.replica.port().to_string()]);
    until_back(&all.backend, &all.world).await;
    let before = calls(&all.replica, "evalsha");
    all.world.find(&claim).await;
    assert!(calls(&all.replica, "evalsha") > before, "the old master answered");
}

/// `WAIT` is about the writes of its own connection, and the one on which the commit went is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_sent_again_on_a_new_connection_is_not_confirmed_by_a_replica_that_lags() {
    let all = Replicated::start().await;
    let (_, lease) = all.leases().await.remove(0);
    all.replica.pause();
    all.proxy.lose_answer(1);
    let nonce = Nonce::from_number(5);
    let intent = Decision::Intend { guard: Guard::open(), nonce };
    let intent = all.backend.store.advance(&lease, intent, all.world.now()).await;
    assert!(matches!(intent, Err(StoreError::Unavailable { .. })), "confirmed: {intent:?}");
    all.replica.resume();
}
