//! Three gateways at full load against the provider's bans: they share the slots and the submissions a second of the account,
//! and the share of one that is killed is used again. The judge is the simulator's ledger.

use std::time::Duration;

use domain::time::Timestamp;
use simulator::Ledger;
use store_tests::servers::{RedisOptions, RedisServer};

use super::{
    fleet::{Fleet, GATEWAYS},
    judge::{every_solve_ends, judge},
    load::Load,
};
use crate::support::{Settings, eventually, wall_clock};

const SLOTS: usize = 40;
/// More than sixty in three seconds are a ban. Three gateways that each send so many are far beyond.
const SUBMITS: &str = "submits_per_second = 15";
/// With tasks of three seconds, slots and submissions are both used up all the time.
const SOLVE_TIME: &str = "3s";
const CLAIMS_PER_ROUND: usize = 450;
const ROUND: Duration = Duration::from_secs(33);

/// One kill by default, and three in two minutes with `SOLVEGATE_LONG`.
fn rounds() -> usize {
    if std::env::var_os("SOLVEGATE_LONG").is_some() { 3 } else { 1 }
}

fn under_way(ledger: &Ledger, at: Timestamp) -> usize {
    let is_open = |ready_at| at < ready_at;
    ledger.accepted.iter().filter(|t| t.at <= at && t.ready_at.is_none_or(is_open)).count()
}

fn most_at_once(ledger: &Ledger) -> usize {
    ledger.accepted.iter().map(|task| under_way(ledger, task.at)).max().unwrap_or(0)
}

/// Waits until so many tasks are at the provider at once that were all submitted after `from`.
async fn wait_for_tasks(fleet: &Fleet, what: &str, tasks: usize, from: Timestamp) {
    eventually(what, async || {
        let mut ledger = fleet.sim.ledger().await;
        ledger.accepted.retain(|task| task.at >= from);
        (under_way(&ledger, wall_clock()) >= tasks).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_at_full_load_are_never_banned_and_use_a_dead_ones_share_again() {
    let redis = RedisServer::start(&RedisOptions::default());
    let settings = Settings {
        slots: "40",
        poll_ms: 500,
        edit: |file| file.replace("submits_per_second = 1000", SUBMITS),
        ..Settings::default()
    };
    let sim = ["--solve-time", SOLVE_TIME, "--bans"];
    let mut fleet = Fleet::with(&redis.url(), &sim, settings);
    let claims = CLAIMS_PER_ROUND * rounds();
    let load = Load::start(&fleet.doors, claims, ROUND * u32::try_from(rounds()).unwrap());
    for round in 0..rounds() {
        let all = SLOTS * 3 / 4;
        wait_for_tasks(&fleet, "all gateways have their shares", all, Timestamp::default()).await;
        let victim = round % GATEWAYS;
        fleet.kill(victim);
        // Tasks of before the kill do not count: the dead gateway's are still at the provider.
        wait_for_tasks(&fleet, "the dead one's share is used again", all, wall_clock()).await;
        if round + 1 < rounds() {
            fleet.restart(victim);
        }
    }
    // The last one is there again for the claims that were made at it.
    fleet.restart((rounds() - 1) % GATEWAYS);
    let outcomes = load.outcomes().await;
    let store = stores::connect(&redis.url()).await.unwrap();
    every_solve_ends(&store).await;
    let paid = fleet.sim.ledger().await;
    println!("{} tasks, at most {} at once", paid.accepted.len(), most_at_once(&paid));
    assert!(most_at_once(&paid) <= SLOTS, "{}", most_at_once(&paid));
    assert!(paid.refused.is_empty(), "{:?}", paid.refused);
    let logs = fleet.logs();
    for ban in ["MAX_USER_TURN", "ERROR: 100"] {
        assert!(!logs.contains(ban), "{logs}");
    }
    judge(&store, &paid, &outcomes, claims).await.hold(&outcomes);
}
