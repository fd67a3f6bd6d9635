//! Responses while claims are queued: the estimate, an impossible deadline, and the state of the circuit breakers.

use std::time::Duration;

use futures_util::future::join_all;
use simulator::{Call, Fault, Planned};
use tokio::time::sleep;

use crate::{
    client::Answer,
    world::{ADMIN, Setting, WORKER, World, turnstile, until},
};

const PAGE: &str = "https%3A%2F%2Fshop.example.com%2F";

async fn one_slot() -> World {
    World::with(Setting { slots: 1, ..Setting::default() }).await
}

/// Takes the only slot and keeps it.
async fn take_the_slot(world: &World) {
    world.claim("never-ready-1", &[]).await;
    world.until_paid(1).await;
}

/// Queues claims behind it, in order.
async fn queue(world: &World, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(world.claim(&format!("0x{n:03}"), &[]).await.text("id"));
        // The queue is ordered by milliseconds.
        sleep(Duration::from_millis(2)).await;
    }
    until_queued(world, count).await;
    ids
}

async fn until_queued(world: &World, count: usize) {
    let is_long = || world.engine.health().queued >= count;
    until("the queue is so long", async || is_long().then_some(())).await;
}

fn eta(answer: &Answer) -> u64 {
    let eta = answer.json()["eta_s"].as_u64().unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!(answer.header("retry-after"), Some(eta.to_string().as_str()), "the same number");
    assert!(eta >= 1);
    eta
}

#[tokio::test]
async fn the_estimate_grows_with_the_queue() {
    let world = one_slot().await;
    take_the_slot(&world).await;
    let ids = queue(&world, 8).await;
    let paths: Vec<_> = ids.iter().map(|id| format!("/v1/solves/{id}")).collect();
    let waiting = join_all(paths.iter().map(|path| world.get(path, WORKER))).await;
    let etas: Vec<_> = waiting.iter().map(eta).collect();
    assert!(etas.windows(2).all(|pair| pair[0] <= pair[1]), "{etas:?}");
    assert!(etas[7] >= etas[0] + 7, "eight rounds of some seconds: {etas:?}");
    let next = world.claim("0xlast", &[]).await;
    assert!(eta(&next) >= etas[7], "{next:?} after {etas:?}");
}

#[tokio::test]
async fn a_claim_that_cannot_meet_its_deadline_is_refused_at_once() {
    let world = one_slot().await;
    for n in 0..20 {
        world.claim(&format!("0x{n}"), &["Prefer: wait=10"]).await;
    }
    take_the_slot(&world).await;
    queue(&world, 40).await;
    let paid = world.paid();
    let hurried = turnstile("0xhurried").replacen('{', r#"{"deadline_s":1,"#, 1);
    let answer = world.post("/v1/solves", WORKER, &[], &hurried).await;
    assert_eq!((answer.status, answer.text("code").as_str()), (429, "cannot_meet_deadline"));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..60).contains(&wait), "{wait}");
    assert!(answer.text("detail").contains("use a longer deadline"), "{answer:?}");
    let patient = world.claim("0xpatient", &[]).await;
    assert_eq!(patient.status, 202, "three minutes are enough");
    assert_eq!(world.paid(), paid);
}

#[tokio::test]
async fn the_compat_door_answers_no_slot_when_the_deadline_is_too_short() {
    let setting = Setting {
        slots: 1,
        deadline: Duration::from_millis(700),
        solving: Duration::from_millis(30),
        ..Setting::default()
    };
    let world = World::with(setting).await;
    for n in 0..20 {
        world.claim(&format!("0x{n}"), &["Prefer: wait=10"]).await;
    }
    let patient = |n: usize| turnstile(&format!("0xq{n}")).replacen('{', r#"{"deadline_s":60,"#, 1);
    let never = turnstile("never-ready-1").replacen('{', r#"{"deadline_s":60,"#, 1);
    world.post("/v1/solves", WORKER, &[], &never).await;
    for n in 0..40 {
        world.post("/v1/solves", WORKER, &[], &patient(n)).await;
    }
    until_queued(&world, 40).await;
    let target = format!("/in.php?key={WORKER}&method=turnstile&sitekey=0x4A&pageurl={PAGE}");
    assert_eq!(world.php(&target).await.body, "ERROR_NO_SLOT_AVAILABLE");
}

#[tokio::test]
async fn readyz_reports_both_circuit_breakers_and_claims_are_still_accepted() {
    let world = World::open().await;
    take_the_slot(&world).await;
    world.account.plan(Planned::next(Call::Submit, Fault::Unreachable).times(1000));
    let sitekeys: Vec<_> = (0..12).map(|n| format!("0x{n}")).collect();
    join_all(sitekeys.iter().map(|sitekey| world.claim(sitekey, &[]))).await;
    let ready = until_readyz_reports(
        &world,
        "provider trouble PROVIDER_AWAY: submissions paused, next probe at",
    )
    .await;
    assert_eq!(ready.json()["troubles"].as_array().unwrap().len(), 1);
    world.account.plan(Planned::next(Call::Poll, Fault::wrong_key()));
    let refused = "polling trouble ERROR_KEY_DOES_NOT_EXIST: polling of paid tasks paused, next";
    let ready = until_readyz_reports(&world, refused).await;
    assert_eq!((ready.status, ready.text("state").as_str()), (200, "degraded"));
    assert_eq!(ready.json()["troubles"].as_array().unwrap().len(), 3, "{ready:?}");
    let page = world.get("/", ADMIN).await.body;
    assert!(page.contains("account trouble") && page.contains("provider trouble"), "{page}");
    assert_eq!(world.claim("0x4A", &[]).await.status, 202);
}

async fn until_readyz_reports(world: &World, trouble: &str) -> Answer {
    until(trouble, async || {
        let ready = world.get("/readyz", ADMIN).await;
        ready.body.contains(trouble).then_some(ready)
    })
    .await
}
