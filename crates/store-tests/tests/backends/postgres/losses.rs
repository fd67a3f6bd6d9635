//! Closed connections, lost replies and server crashes: no acknowledged write is lost, and nothing is done twice.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test outside the server under test, which fails by panicking and shows its figures"
)]

use std::{
    collections::BTreeSet,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use domain::{
    claim::{Admission, NewClaim},
    id::Nonce,
    ports::StoreError,
    solve::{Decision, Fact},
};
use store_tests::{
    World, check, named,
    servers::{FaultProxy, PostgresOptions, PostgresServer},
};
use stores::Backend;

use tokio::task::JoinSet;

use super::through_pooler;
use crate::{
    connect,
    gateways::{Gateway, gateways},
    prefix,
    schedule::Comparison,
};

/// A server that is durable only because decisions set `synchronous_commit` themselves: by default it would lose the
/// last seconds in a crash.
fn durable() -> PostgresServer {
    let extra = ["synchronous_commit=off", "wal_writer_delay=10s"].map(Into::into).into();
    PostgresServer::start(&PostgresOptions { durable: true, extra, ..PostgresOptions::default() })
}

// === lost replies ===

const SHORT: usize = 20;

/// The server acts on a request and its reply is lost: at every step of a schedule, in the first, second and third
/// round trip from there. Nothing is done twice, and no acknowledged write is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_lost_at_any_place_changes_nothing() {
    for_each_place(3, Gateways::One).await;
}

/// The same while another gateway decides in between, so that the decisions run again in the transaction whose reply is
/// lost, which then has up to four round trips. At every third place, because each pair of gateways takes half a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_lost_after_a_conflict_changes_nothing() {
    for_each_place(4, Gateways::TwoInTurn).await;
}

#[derive(Clone, Copy, PartialEq)]
enum Gateways {
    One,
    TwoInTurn,
}

async fn for_each_place(trips: u32, gateways: Gateways) {
    let server = PostgresServer::start(&PostgresOptions::default());
    let proxy = FaultProxy::start(server.port());
    let mut opened = 0;
    let stride = if gateways == Gateways::One { 1 } else { 3 };
    let places = (0..SHORT).step_by(stride);
    let schedules = trips as usize * places.len();
    for place in places {
        for trip in 1..=trips {
            let happened = with_a_loss((&server, &proxy), place, trip, gateways).await;
            opened += usize::from(happened.contains("Opened") || happened.contains("Started"));
        }
    }
    assert_eq!(opened, schedules, "every schedule decides something");
}

async fn with_a_loss(
    (server, proxy): (&PostgresServer, &FaultProxy),
    place: usize,
    trip: u32,
    gateways: Gateways,
) -> BTreeSet<String> {
    let prefix = prefix();
    let url =
        through_pooler(&format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port()), server);
    let losing = connect(&url, &prefix).await;
    let other = connect(&server.url(), &prefix).await;
    let connections = proxy.accepted();
    let mut comparison = Comparison::new(place as u64 % 4);
    for step in 0..SHORT {
        if step == place {
            proxy.lose_answer(trip);
        }
        let is_others = gateways == Gateways::TwoInTurn && (step + place) % 2 == 1;
        comparison.step(if is_others { &other } else { &losing }, 0).await;
    }
    // The round trips of the last step are reads.
    for _ in 0..trip {
        losing.records.entries(0, 1).await.ok();
    }
    let happened = comparison.finish(&losing).await;
    assert!(proxy.accepted() > connections, "place {place}, trip {trip}: no answer was lost");
    happened
}

/// Two gateways change the same rows in turn, so that each finds what the other has written. They decide again while they hold
/// the lock, and no transaction is rolled back for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_costs_no_second_transaction() {
    const TURNS: usize = 40;
    let server = PostgresServer::start(&PostgresOptions::default());
    let rolled_back = || {
        let text = "SELECT xact_rollback FROM pg_stat_database WHERE datname = 'postgres'";
        server.psql(text).parse::<usize>().unwrap()
    };
    let all = gateways(&server.url(), &prefix(), 2).await;
    let world = &all[0].world;
    let keyed = || {
        let new = world.turnstile("a");
        NewClaim { key: named(&new, "k"), ..new }
    };
    world.open(keyed()).await;
    let before = rolled_back();
    for turn in 0..TURNS {
        let replayed = all[turn % 2].world.admit(keyed()).await;
        assert!(matches!(replayed, Admission::Replayed(_)), "{replayed:?}");
    }
    check(world.records.as_ref()).await;
    // The server counts the transactions of a connection when it is closed.
    drop(all);
    let start = Instant::now();
    while server.psql("SELECT count(*) FROM pg_stat_activity WHERE client_port IS NOT NULL") != "1"
    {
        assert!(start.elapsed() < Duration::from_secs(20), "the connections stay open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rolled_back = rolled_back() - before;
    println!("{TURNS} conflicts, {rolled_back} transactions rolled back");
    assert!(rolled_back < TURNS / 2, "{rolled_back}");
}

// === closed connections ===

/// The number of crashes.
const CRASHES: usize = 6;
/// A busy machine takes seconds to start a server.
const MOST_AWAY: Duration = Duration::from_secs(120);

/// Ends the disturbances when the claims end, also by a panic, which would wait for them for ever.
struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Retries a claim until it is admitted.
async fn admit_with_retries(at: &Gateway, new: NewClaim, unanswered: &AtomicUsize) {
    let start = Instant::now();
    loop {
        let admitted = at.backend.store.admit(new.clone(), at.world.now()).await;
        match admitted {
            // The id is taken by this very claim: an earlier try was carried out and its reply was lost.
            Ok(Admission::Opened(_) | Admission::NameTaken) => return,
            Ok(other) => panic!("{other:?}"),
            Err(StoreError::Unavailable { .. }) => {
                unanswered.fetch_add(1, Ordering::Relaxed);
                assert!(start.elapsed() < MOST_AWAY, "the store did not come back");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sends claims to three gateways while `trouble` disturbs the server.
async fn claims_during(
    server: &PostgresServer,
    claims: usize,
    trouble: impl Fn() + Send + 'static,
) -> usize {
    let all = gateways(&server.url(), &prefix(), 3).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let end = EndOnDrop(is_over.clone());
    let unanswered = Arc::new(AtomicUsize::new(0));
    let disturbing = tokio::task::spawn_blocking(move || {
        let mut times = 0;
        while !is_over.load(Ordering::Relaxed) {
            trouble();
            times += 1;
        }
        times
    });
    let callers = 30;
    let mut set = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let (at, unanswered) = (all[caller % all.len()].clone(), unanswered.clone());
        set.spawn(async move {
            for number in 0..claims / callers {
                let new = at.world.turnstile(&format!("site-{caller}-{number}"));
                admit_with_retries(&at, new, &unanswered).await;
            }
        });
    }
    set.join_all().await;
    drop(end);
    let times: usize = disturbing.await.unwrap();
    println!(
        "{claims} claims, {times} disturbances, {} calls without a reply",
        unanswered.load(Ordering::Relaxed)
    );
    let world = &all[1].world;
    check(world.records.as_ref()).await;
    assert_eq!(world.entries().await.len(), claims, "each claim is recorded once");
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_killed_at_random_lose_nothing_and_double_nothing() {
    let server = Arc::new(PostgresServer::start(&PostgresOptions::default()));
    let killer = server.clone();
    let times = claims_during(&server, 1500, move || {
        killer.terminate("random() < 0.4");
        std::thread::sleep(Duration::from_millis(5));
    })
    .await;
    assert!(times >= 5, "too few kills: {times}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_of_the_server_in_the_middle_loses_nothing_and_doubles_nothing() {
    let server = Arc::new(durable());
    let victim = server.clone();
    let crashes = Arc::new(AtomicUsize::new(0));
    let counted = crashes.clone();
    claims_during(&server, 1500, move || {
        std::thread::sleep(Duration::from_millis(300));
        // The server must stay up long enough in the end.
        if counted.fetch_add(1, Ordering::Relaxed) < CRASHES {
            victim.restart();
        }
    })
    .await;
    assert!(crashes.load(Ordering::Relaxed) >= 2, "too few crashes");
}

// === an unreachable server ===

async fn one(server_url: &str) -> (Backend, World) {
    let backend = connect(server_url, &prefix()).await;
    let world = World::new(&backend);
    (backend, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_fast_while_reconnects_back_off() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let proxy = FaultProxy::start(server.port());
    let (backend, world) =
        one(&format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port())).await;
    let claim = world.open(world.turnstile("a")).await;
    proxy.cut();
    let start = Instant::now();
    let mut requests = 0_u64;
    while start.elapsed() < Duration::from_secs(3) {
        assert!(backend.store.find_claim(claim.id).await.is_err());
        requests += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(requests > 100, "calls fail fast ({requests})");
    proxy.heal();
    while backend.store.find_claim(claim.id).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(15), "the store did not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.open(world.turnstile("b")).await;
    check(backend.records.as_ref()).await;
}

/// While a new connection is being established, callers with an existing connection are served as usual.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_connection_attempt_delays_no_other_caller() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let proxy = FaultProxy::start(server.port());
    let (backend, world) =
        one(&format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port())).await;
    let claim = world.open(world.turnstile("a")).await;
    world.find(&claim).await;
    // This listener accepts connections and never replies.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.lead_to(silent.local_addr().unwrap().port());
    let start = Instant::now();
    let mut asking = JoinSet::new();
    for _ in 0..2 {
        let (store, id) = (backend.store.clone(), claim.id);
        asking.spawn(async move { store.find_claim(id).await });
    }
    let first = asking.join_next().await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(first.unwrap(), Some(world.find(&claim).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_row_that_writers_lock_nothing_is_decided() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let schema = prefix();
    let backend = connect(&server.url(), &schema).await;
    let world = World::new(&backend);
    world.open(world.turnstile("a")).await;
    server.psql(&format!("DELETE FROM {schema}.head"));
    let refused = backend.store.admit(world.turnstile("b"), world.now()).await;
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
    assert_eq!(server.psql(&format!("SELECT count(*) FROM {schema}.claims")), "1");
}

/// A gateway that hangs between its two round trips holds the lock on the head row: the others continue after two
/// seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_hangs_in_a_transaction_does_not_block_the_others() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let proxy = FaultProxy::start(server.port());
    let schema = prefix();
    let stuck =
        connect(&format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port()), &schema).await;
    let other = connect(&server.url(), &schema).await;
    let world = World::new(&stuck);
    world.open(world.turnstile("a")).await;
    proxy.drop_answers();
    let asking = world.turnstile("b");
    let (store, now) = (stuck.store.clone(), world.now());
    let stuck_asking = tokio::spawn(async move { store.admit(asking, now).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let through = world.through(&other);
    let start = Instant::now();
    through.open(through.turnstile("c")).await;
    println!("another gateway waited {:?} for one that hangs", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    assert!(stuck_asking.await.unwrap().is_err(), "it was never answered");
    check(other.records.as_ref()).await;
}

/// The server carries out a commit long after its caller timed out. The gateway reports nothing before the outcome is
/// known: otherwise a withheld intent could still be written, and no gateway would resolve it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_carried_out_after_it_was_given_up_is_withheld_then() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let schema = prefix();
    let backend = connect(&server.url(), &schema).await;
    let world = World::new(&backend);
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let nonce = Nonce::from_number(7);

    // The commit of an intent takes longer than the timeout; by then the server has read all of it.
    server.psql(&format!(
        "CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN IF NEW.stage = ''intent'' THEN PERFORM pg_sleep(12); END IF; RETURN NEW; END'; \
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON {schema}.solves \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.slow()"
    ));
    let intended = backend
        .store
        .advance(
            &lease,
            Decision::Intend { guard: domain::declarations::Guard::open(), nonce },
            world.now(),
        )
        .await;
    assert!(matches!(intended, Err(StoreError::Unavailable { .. })), "{intended:?}");
    let start = Instant::now();
    let withheld = Fact::Withheld { nonce };
    while backend.store.settle(lease.solve.id, 1, withheld.clone(), world.now()).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "the store did not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("withheld {:?} after it was given up", start.elapsed());
    server.psql(&format!("DROP TRIGGER slow ON {schema}.solves"));

    let again = world
        .decide(
            &lease,
            Decision::Intend {
                guard: domain::declarations::Guard::open(),
                nonce: Nonce::from_number(8),
            },
        )
        .await;
    assert_eq!(again.unwrap().attempt, 2, "the first attempt was written, and withheld");
    check(&*backend.records).await;
}
