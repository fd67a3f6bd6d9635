//! Claims at several gateways are paid once, can be fetched at any of them, and are announced at once.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use solvegate::client::Call;
use store_tests::servers::{RedisOptions, RedisServer};

use crate::support::pause;

use super::{
    fleet::{Fleet, GATEWAYS},
    load::{challenge, claim, fetch, id_of},
    now,
};

const CALLERS: usize = 500;
const SAMPLES: usize = 60;
const MOST_RETRIES: usize = 20;

fn fleet(solve_time: &str) -> (RedisServer, Fleet) {
    let redis = RedisServer::start(&RedisOptions::default());
    let fleet = Fleet::start(&redis.url(), solve_time);
    (redis, fleet)
}

/// Sends calls to all gateways in turn, all at once, and returns tokens and ids. An overloaded gateway refuses what waited too
/// long before it is decided; such a call is sent again, as a client would.
async fn send_everywhere(fleet: &Fleet, call: impl Fn(usize) -> Call) -> Vec<(Value, Value)> {
    let answers = (0..CALLERS).map(async |n| {
        let call = call(n).header("prefer", "wait=60").waiting(Duration::from_secs(60));
        let door = &fleet.doors.all()[n % GATEWAYS];
        let mut reply = door.send(&call).await;
        for _ in 0..MOST_RETRIES {
            if reply.body["code"] != "store_unavailable" {
                break;
            }
            pause(Duration::from_secs(1)).await;
            reply = door.send(&call).await;
        }
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
        (reply.body["token"].clone(), reply.body["id"].clone())
    });
    join_all(answers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_equal_claims_at_three_gateways_are_one_charge() {
    let (_redis, fleet) = fleet("1s");
    let start = now();
    let got = send_everywhere(&fleet, |_| Call::post("/v1/solves", challenge("the-same"))).await;
    assert!(got.iter().all(|one| *one == got[0]), "one claim, one token");
    println!(
        "{CALLERS} claims without a key: {} charge, {:?}",
        fleet.sim.charges().await,
        start.elapsed()
    );
    assert_eq!(fleet.sim.charges().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_image_under_five_hundred_keys_at_three_gateways_is_one_charge() {
    let (_redis, fleet) = fleet("1s");
    // The smallest valid image.
    let image = "R0lGODlhAQABAAAAACwAAAAAAQABAAA=";
    let ask = |n: usize| {
        Call::post("/v1/solves", json!({ "kind": "image", "image": image }))
            .header("idempotency-key", format!("image-{n}"))
    };
    let got = send_everywhere(&fleet, ask).await;
    assert!(got.iter().all(|(answer, _)| *answer == got[0].0), "one answer");
    let claims: std::collections::BTreeSet<_> = got.iter().map(|(_, id)| id.to_string()).collect();
    assert_eq!((claims.len(), fleet.sim.charges().await), (CALLERS, 1));
    println!("{CALLERS} keys with one image: 1 charge");
}

/// Opens a claim at the first gateway and waits at all; returns how much later than the first the last had the answer.
async fn lag(fleet: &Fleet, name: &str) -> Duration {
    let id = id_of(&fleet.gateway(0).send(&claim(name)).await);
    let waiting = fleet.doors.all().iter().map(async |door| {
        let reply = door.send(&fetch(&id, 30)).await;
        assert_eq!((reply.status, &reply.body["id"]), (StatusCode::OK, &json!(id)));
        (now(), reply.body["token"].clone())
    });
    let answers = join_all(waiting).await;
    assert!(answers.iter().all(|(_, token)| *token == answers[0].1), "one claim has one token");
    let times = answers.iter().map(|(at, _)| *at);
    times.clone().max().unwrap() - times.min().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_reaches_those_who_wait_at_other_gateways_at_once() {
    let (_redis, fleet) = fleet("100ms");
    let mut lags = Vec::new();
    for n in 0..SAMPLES {
        lags.push(lag(&fleet, &format!("bell-{n}")).await);
    }
    lags.sort();
    let (median, p90, most) = (lags[SAMPLES / 2], lags[SAMPLES * 9 / 10], lags[SAMPLES - 1]);
    println!(
        "answer at the last of three gateways after the first: median {median:?}, p90 {p90:?}, most {most:?}"
    );
    assert_eq!(fleet.sim.charges().await, SAMPLES);
    // Without notifications each gateway would read once a second, and the last of three would answer most of a second
    // later.
    assert!(median < Duration::from_millis(300), "{median:?}");
}
