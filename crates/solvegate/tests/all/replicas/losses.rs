//! The store's server dies, loses data, hangs, fails over or is cut off under load: the answers meanwhile, the
//! recovery, and the costs.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use solvegate::client::Call;
use store_tests::servers::{
    DynamoDbServer, FaultProxy, Faults, HttpProxy, Persistence, PostgresOptions, PostgresServer,
    RedisCluster, RedisOptions, RedisServer, Replicas, dynamodb_url,
};

use super::{
    fleet::{Door, Fleet, GATEWAYS},
    judge::{every_solve_ends, every_task_is_priced, judge},
    load::{Load, claim, id_of, work},
    now,
};
use crate::support::{WORKER, eventually, pause};

const CLAIMS: usize = 200;
/// Fewer on DynamoDB, where every decision is a request that is retried for seconds during an outage.
const FEWER_CLAIMS: usize = 50;

fn redis(persistence: Persistence) -> RedisServer {
    RedisServer::start(&RedisOptions { persistence, ..RedisOptions::default() })
}

/// A run under load with trouble in the middle.
struct Run {
    name: &'static str,
    fleet: Fleet,
    load: Load,
    /// A claim from before the disturbance.
    early: String,
}

// === impl Run ===

impl Run {
    async fn start(name: &'static str, store: &str, over: Duration) -> Self {
        Self::start_with(CLAIMS, name, store, over).await
    }

    async fn start_with(claims: usize, name: &'static str, store: &str, over: Duration) -> Self {
        let fleet = Fleet::start(store, "500ms");
        let early = id_of(&fleet.gateway(0).send(&claim("early")).await);
        let load = Load::start(&fleet.doors, claims, over);
        pause(Duration::from_secs(2)).await;
        Self { name, fleet, load, early }
    }

    /// Checks the answers of every gateway on both APIs during the outage, all at once, because the outage must not
    /// last longer than claims wait.
    async fn every_gateway_reports_the_outage(&self) {
        let doors = self.fleet.doors.all().iter().enumerate();
        join_all(doors.map(|(n, door)| self.reports_the_outage(n, door))).await;
    }

    /// On a busy machine a call may time out before the outage begins, so each answer is waited for on its own.
    async fn reports_the_outage(&self, n: usize, door: &Door) {
        eventually("v1 says so", async || {
            let reply = door.try_send(&claim(&format!("probe-{n}"))).await?;
            let said = (reply.status, reply.body["code"].as_str());
            (said == (StatusCode::SERVICE_UNAVAILABLE, Some("store_unavailable"))).then_some(())
        })
        .await;
        let id = &self.early;
        let fetch = Call::get(format!("/res.php?key={WORKER}&action=get&id={id}&hold=0&json=1"));
        let answers = [(compat_submit(n), "ERROR_SERVER_ERROR"), (fetch, "CAPCHA_NOT_READY")];
        for (call, answer) in answers {
            eventually("compat says so", async || {
                let reply = door.try_send(&call).await?;
                (reply.body["request"] == answer).then_some(())
            })
            .await;
        }
    }

    /// Waits until every gateway admits claims again, and prints how long that took. There is no bound, because the
    /// machine may be busy.
    async fn is_back(&self) {
        let start = now();
        for (n, door) in self.fleet.doors.all().iter().enumerate() {
            eventually("it admits again", async || {
                let reply = door.try_send(&claim(&format!("probe-{n}"))).await?;
                reply.status.is_success().then_some(())
            })
            .await;
        }
        let took = start.elapsed();
        println!("{}: as usual after {took:?}", self.name);
    }

    /// Prints whether claims are being served.
    async fn print_whether_it_solves(&self, when: &str) {
        let start = now();
        let served = work(&self.fleet.doors, "probe-0");
        let state = match tokio::time::timeout(Duration::from_secs(4), served).await {
            Ok(outcome) => format!("{} after {:?}", outcome.end, start.elapsed()),
            Err(_) => "not served within 4 s".to_owned(),
        };
        println!("{}: {when} a claim is {state}", self.name);
    }

    /// Lets the load end, and judges the run.
    async fn end(self, store: &str) {
        let mut outcomes = self.load.outcomes().await;
        for n in 0..GATEWAYS {
            outcomes.push(work(&self.fleet.doors, &format!("probe-{n}")).await);
        }
        outcomes.push(work(&self.fleet.doors, "early").await);
        // In addition there are the probes of the compatibility API.
        let names = outcomes.len() + GATEWAYS;
        let store = stores::connect(store).await.unwrap();
        every_solve_ends(&store).await;
        every_task_is_priced(&store).await;
        let paid = self.fleet.sim.ledger().await;
        let noticed = self.fleet.losses_noticed();
        println!("{}: losses noticed {noticed} times", self.name);
        judge(&store, &paid, &outcomes, names).await.hold(&outcomes);
    }
}

fn compat_submit(n: usize) -> Call {
    let page = "https://shop.example.com/";
    let key = format!("compat-{n}");
    Call::get(format!(
        "/in.php?key={WORKER}&method=turnstile&sitekey={key}&pageurl={page}&idempotency_key={key}&json=1"
    ))
}

/// Kills Redis under load and starts it again. Returns how many losses the gateways noticed.
async fn killed(name: &'static str, persistence: Persistence) -> usize {
    let redis = redis(persistence);
    let run = Run::start(name, &redis.url(), Duration::from_secs(10)).await;
    redis.kill();
    run.every_gateway_reports_the_outage().await;
    pause(Duration::from_secs(2)).await;
    redis.restart();
    run.is_back().await;
    let noticed = run.fleet.losses_noticed();
    run.end(&redis.url()).await;
    noticed
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_with_every_write_synced() {
    let noticed = killed("killed, every write synced", Persistence::Always).await;
    assert_eq!(noticed, 0, "nothing was lost");
}

/// Whether something is lost depends on the disk: while a background fsync lasts, Redis acknowledges writes that it has
/// not handed to the kernel yet. The money has to add up in either case.
#[tokio::test(flavor = "multi_thread")]
async fn killed_with_an_append_only_file() {
    killed("killed, append-only file", Persistence::EverySecond).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_without_persistence() {
    let noticed = killed("killed, no persistence", Persistence::None).await;
    assert!(noticed > 0, "everything was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_for_twenty_seconds() {
    let redis = redis(Persistence::None);
    let run = Run::start("paused for 20 s", &redis.url(), Duration::from_secs(24)).await;
    let start = now();
    redis.pause();
    run.every_gateway_reports_the_outage().await;
    pause(Duration::from_secs(20).saturating_sub(start.elapsed())).await;
    redis.resume();
    run.is_back().await;
    assert_eq!(run.fleet.losses_noticed(), 0, "nothing was lost: {}", run.fleet.logs());
    run.end(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_loses_a_master() {
    let cluster = RedisCluster::start(Replicas::OneEach);
    let head = "{solvegate:0}:head";
    let run = Run::start("failover", &cluster.url(), Duration::from_secs(15)).await;
    let dead = cluster.kill_master_of(head);
    let start = now();
    cluster.wait_for_failover(head);
    println!("failover: the replica took over after {:?}", start.elapsed());
    run.is_back().await;
    run.print_whether_it_solves("without a replica").await;
    dead.restart();
    run.end(&cluster.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_off_in_the_middle_of_scripts() {
    let redis = redis(Persistence::None);
    let proxy = FaultProxy::start(redis.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let run = Run::start("cut in mid-script", &url, Duration::from_secs(15)).await;
    for _ in 0..30 {
        proxy.lose_answer(fastrand::u32(1..20));
        pause(Duration::from_millis(150)).await;
    }
    for _ in 0..3 {
        proxy.cut_after_request(fastrand::u32(1..20));
        run.every_gateway_reports_the_outage().await;
        proxy.heal();
        run.is_back().await;
    }
    assert_eq!(run.fleet.losses_noticed(), 0, "nothing was lost: {}", run.fleet.logs());
    run.end(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_crashes_recovers_and_loses_connections() {
    let options = PostgresOptions { durable: true, ..PostgresOptions::default() };
    let postgres = PostgresServer::start(&options);
    let run = Run::start("PostgreSQL crashed", &postgres.url(), Duration::from_secs(15)).await;
    postgres.crash();
    run.every_gateway_reports_the_outage().await;
    pause(Duration::from_secs(2)).await;
    postgres.restart();
    run.is_back().await;
    let mut ended = 0;
    for _ in 0..30 {
        ended += postgres.terminate("random() < 0.5");
        pause(Duration::from_millis(100)).await;
    }
    println!("{}: {ended} connections ended", run.name);
    let forgotten = run.fleet.logs().contains("has forgotten commits");
    assert!(!forgotten, "nothing was lost: {}", run.fleet.logs());
    run.end(&postgres.url()).await;
}

/// Requests are refused, conflict, fail after they were carried out, or lose their replies; then the server crashes.
#[tokio::test(flavor = "multi_thread")]
async fn a_dynamodb_that_fails_now_and_then_and_is_away_for_a_while() {
    let server = DynamoDbServer::start_durable();
    let proxy = HttpProxy::start(server.port(), 3);
    let url = format!("{}&file_every=30", dynamodb_url(proxy.port(), "shop"));
    stores::migrate(&url).await.unwrap();
    let over = Duration::from_secs(15);
    let run = Run::start_with(FEWER_CLAIMS, "DynamoDB with faults", &url, over).await;
    proxy.set(Faults {
        throttled: 5,
        conflicts: 3,
        failed_after: 4,
        lost: 4,
        denied: 0,
        only: None,
    });
    pause(Duration::from_secs(8)).await;
    proxy.set(Faults::default());
    server.kill();
    run.every_gateway_reports_the_outage().await;
    server.restart();
    run.is_back().await;
    run.end(&url).await;
    let (_, probe) = stores::DynamoDbProbe::connect(&url).await.unwrap();
    println!("{:?} {:?}", probe.take_stock().await.unwrap(), proxy.request_counts());
}
