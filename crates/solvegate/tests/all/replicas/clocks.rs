//! A gateway with a wrong clock decides nothing, and a gateway that only seemed dead costs nothing. The judge is the
//! simulator's ledger.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use domain::{claim::ClaimState, ledger::Event};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use solvegate::client::Call;
use store_tests::servers::{
    DynamoDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use super::{
    fleet::Fleet,
    judge::{every_solve_ends, judge},
    load::{claim, fetch, id_of, work},
};
use crate::support::{Gateway, Settings, Sim, all_entries, eventually, pause, program};

const CLAIMS: usize = 40;
const HOUR_MS: i64 = 3_600_000;
/// Longer than a lease, and shorter than a lease and the grace after it.
const STOPPED: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_a_gateway_an_hour_ahead_decides_nothing() {
    let redis = RedisServer::start(&RedisOptions::default());
    an_hour_ahead(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_gateway_an_hour_ahead_decides_nothing() {
    let postgres = PostgresServer::start(&PostgresOptions::default());
    an_hour_ahead(&postgres.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_dynamodb_a_gateway_an_hour_ahead_decides_nothing() {
    let server = DynamoDbServer::start();
    stores::migrate(&server.url("shop")).await.unwrap();
    an_hour_ahead(&server.url("shop")).await;
}

async fn an_hour_ahead(store: &str) {
    let (home, ahead_home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sim = Sim::start(home.path(), &["--solve-time", "1500ms"]);
    let settings = Settings { store: store.to_owned(), ..Settings::default() };
    let mut right = Gateway::with(home.path(), &sim, &settings);
    let mut ids = Vec::new();
    for number in 0..CLAIMS / 2 {
        ids.push(id_of(&right.send(&claim(&format!("before-{number}"))).await));
    }
    let environment = shifted_clock(&clock_library(ahead_home.path()), HOUR_MS);
    let wrong =
        Gateway::with(ahead_home.path(), &sim, &Settings { environment, ..settings.clone() });
    refuses_everything(&wrong).await;

    // The right one starts again, beside the wrong one, and is not led astray by it.
    right.process.signal(Signal::TERM);
    right.process.wait();
    let right = Gateway::with(home.path(), &sim, &settings);
    for number in 0..CLAIMS / 2 {
        ids.push(id_of(&right.send(&claim(&format!("after-{number}"))).await));
    }
    for id in &ids {
        let fetched = right.send(&fetch(id, 60)).await;
        assert_eq!(fetched.body["state"], "served", "{}", fetched.body);
    }
    refuses_everything(&wrong).await;
    let said = wrong.process.stderr();
    assert!(said.contains("decides nothing until its clock is right"), "{said}");

    let backend = stores::connect(store).await.unwrap();
    let entries = all_entries(&*backend.records).await;
    for entry in &entries {
        let is_harm = match &entry.event {
            Event::Recovered { .. } | Event::Authorised { .. } => true,
            Event::Ended { state, .. } => *state == ClaimState::Lapsed,
            _ => false,
        };
        assert!(!is_harm, "{entry:?}");
    }
    assert_eq!(sim.charges().await, CLAIMS);
    store_tests::check(&*backend.records).await;
}

async fn refuses_everything(wrong: &Gateway) {
    let ready = wrong.send_as_admin(&Call::get("/readyz")).await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE, "{}", ready.body);
    assert!(
        ready.body.to_string().contains("ahead of that of the store's server"),
        "{}",
        ready.body
    );
    let refused = wrong.send(&claim("wrong")).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.body);
}

/// The environment of a process whose wall clock is so far ahead, or behind.
pub(super) fn shifted_clock(library: &Path, by_ms: i64) -> Vec<(String, String)> {
    let preload = library.to_str().expect("the temporary directory has a plain name");
    let all = [("LD_PRELOAD", preload.to_owned()), ("CLOCK_SHIFT_MS", by_ms.to_string())];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

/// A library that shifts the wall clock of a process by `CLOCK_SHIFT_MS`.
pub(super) fn clock_library(dir: &Path) -> PathBuf {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <time.h>
        int clock_gettime(clockid_t clock, struct timespec *time) {
          static int (*real)(clockid_t, struct timespec *);
          static long long shift;
          if (!real) {
            const char *named = getenv("CLOCK_SHIFT_MS");
            shift = named ? atoll(named) : 0;
            real = dlsym(RTLD_NEXT, "clock_gettime");
          }
          int status = real(clock, time);
          if (status == 0 && clock == CLOCK_REALTIME) {
            long long nanos = time->tv_nsec + shift % 1000 * 1000000;
            long long carry = nanos < 0 ? -1 : nanos / 1000000000;
            time->tv_sec += shift / 1000 + carry;
            time->tv_nsec = nanos - carry * 1000000000;
          }
          return status;
        }
    "#;
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    std::fs::write(&source, SOURCE).unwrap();
    // Every machine with Rust has a C compiler, which links.
    let mut compiler = program(dir, "cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "cc failed");
    library
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_a_gateway_that_was_stopped_for_20_seconds_costs_nothing() {
    let redis = RedisServer::start(&RedisOptions::default());
    stopped_for_a_while(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_gateway_that_was_stopped_for_20_seconds_costs_nothing() {
    let postgres = PostgresServer::start(&PostgresOptions::default());
    stopped_for_a_while(&postgres.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_dynamodb_a_gateway_that_was_stopped_for_20_seconds_costs_nothing() {
    let server = DynamoDbServer::start();
    stores::migrate(&server.url("shop")).await.unwrap();
    stopped_for_a_while(&server.url("shop")).await;
}

async fn stopped_for_a_while(store: &str) {
    let fleet = Fleet::start(store, "800ms");
    // The replies to these submissions are on their way while the gateway stands still.
    fleet
        .sim
        .fault(json!({ "on": "submit", "fault": { "trickle": 3_000 }, "times": CLAIMS }))
        .await;
    let names: Vec<String> = (0..CLAIMS).map(|number| format!("stopped-{number}")).collect();
    for name in &names {
        id_of(&fleet.gateway(0).send(&claim(name)).await);
    }
    eventually("the first charge", async || (fleet.sim.charges().await > 0).then_some(())).await;
    fleet.gateway(0).process.signal(Signal::STOP);
    pause(STOPPED).await;
    fleet.gateway(0).process.signal(Signal::CONT);
    let mut outcomes = Vec::new();
    for name in &names {
        outcomes.push(work(&fleet.doors, name).await);
    }
    let backend = stores::connect(store).await.unwrap();
    every_solve_ends(&backend).await;
    let entries = all_entries(&*backend.records).await;
    let accepted = |of: &domain::ledger::Entry, number: u32| {
        entries.iter().any(|entry| {
            entry.solve == of.solve
                && matches!(&entry.event, Event::Accepted { attempt, .. } if *attempt == number)
        })
    };
    let mut authorised = 0;
    for entry in &entries {
        if let Event::Authorised { attempt, .. } = entry.event {
            authorised += 1;
            assert!(!accepted(entry, attempt), "its reply was known: {entry:?}");
        }
    }
    let recovered = entries.iter().filter(|entry| matches!(entry.event, Event::Recovered { .. }));
    println!("{} of {CLAIMS} solves were taken over, {authorised} authorised", recovered.count());
    let paid = fleet.sim.ledger().await;
    assert!(paid.accepted.len() <= CLAIMS + authorised, "{} charges", paid.accepted.len());
    judge(&backend, &paid, &outcomes, CLAIMS).await.hold(&outcomes);
}
