//! The provider's calls: what a real one does, and that all others do nothing and learn nothing.

use std::time::Duration;

use domain::{
    id::{AttemptName, Nonce, SolveId},
    ports::Store as _,
    secret::Secret,
};
use simulator::{Call, Fault, Planned};
use tokio::time::sleep;

use crate::{
    client::Answer,
    world::{ADMIN, PINGBACK, Setting, WORKER, World, request},
};

/// Polls come so late that only a call lands a solve.
async fn quiet(solving: Duration) -> World {
    World::with(Setting { solving, pingback: true, ..Setting::default() }).await
}

/// A claim whose task the provider has taken: its id, its attempt and its task.
async fn sent(world: &World, sitekey: &str) -> (String, AttemptName, String) {
    let before = world.paid();
    let id = world.claim(sitekey, &[]).await.text("id");
    world.until_paid(before + 1).await;
    let story = world.get(&format!("/v1/solves/{id}/explain"), WORKER).await.json();
    let solve: SolveId = story["claim"]["solve"].as_str().unwrap().parse().unwrap();
    let found = world.store.find_solve(solve).await.unwrap().unwrap();
    let nonce = found.nonce.expect("it was sent");
    let task = world.account.ledger().accepted.last().unwrap().task.to_string();
    (id, AttemptName { solve, attempt: found.attempt, nonce }, task)
}

fn path(attempt: AttemptName) -> String {
    format!("/-/pingback/{}", wire::pingback::path(attempt, &Secret::new(PINGBACK)))
}

async fn post(world: &World, path: &str, body: &str) -> Answer {
    let form = ["Content-Type: application/x-www-form-urlencoded"];
    world.send(&request("POST", path, "", &form, body)).await
}

/// Every call is answered alike.
async fn call(world: &World, path: &str, body: &str) {
    let answer = post(world, path, body).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "OK"), "{answer:?}");
}

async fn fetch(world: &World, id: &str, wait: u32) -> Answer {
    world.get(&format!("/v1/solves/{id}?wait={wait}"), WORKER).await
}

fn polls(world: &World) -> u64 {
    world.account.ledger().polls
}

const READY: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_call_lands_the_solve_with_one_question_by_post_and_by_get() {
    let world = quiet(READY).await;
    let (id, attempt, task) = sent(&world, "0x1").await;
    sleep(LATER).await;
    assert_eq!((polls(&world), fetch(&world, &id, 0).await.status), (0, 202));
    call(&world, &path(attempt), &format!("id={task}&code=x")).await;
    assert_eq!((fetch(&world, &id, 50).await.status, polls(&world)), (200, 1));
    let (id, attempt, task) = sent(&world, "0x2").await;
    sleep(LATER).await;
    let answer = world.get(&format!("{}?id={task}&code=x", path(attempt)), "").await;
    assert_eq!((answer.status, fetch(&world, &id, 50).await.status), (200, 200));
}

#[tokio::test]
async fn a_forged_code_is_not_believed() {
    let world = quiet(READY).await;
    let (id, attempt, task) = sent(&world, "0x1").await;
    sleep(LATER).await;
    let forged = "%3Cscript%3Ealert(1)%3C/script%3E";
    call(&world, &path(attempt), &format!("id={task}&code={forged}")).await;
    let answer = fetch(&world, &id, 50).await;
    assert!(answer.text("token").starts_with("SIM."), "{answer:?}");
}

#[tokio::test]
async fn a_forged_address_does_nothing_and_is_answered_alike() {
    let world = quiet(READY).await;
    let (id, attempt, task) = sent(&world, "0x1").await;
    sleep(LATER).await;
    let real = path(attempt);
    let other = AttemptName { nonce: Nonce::from_number(1), ..attempt };
    let (name, _) = real.rsplit_once('-').unwrap();
    let forged = [
        format!("{name}-00000000000000000000000000000000"),
        format!("{real}0"),
        name.to_owned(),
        path(other).rsplit_once('-').map(|(_, proof)| format!("{name}-{proof}")).unwrap(),
        "/-/pingback/00000000000000000000000000000000".to_owned(),
    ];
    for path in forged {
        call(&world, &path, &format!("id={task}&code=FORGED")).await;
    }
    sleep(LATER).await;
    assert_eq!((polls(&world), fetch(&world, &id, 0).await.status), (0, 202));
}

#[tokio::test]
async fn a_call_that_says_nothing_readable_does_nothing() {
    let world = quiet(READY).await;
    let (id, attempt, _) = sent(&world, "0x1").await;
    sleep(LATER).await;
    for body in ["", "code=x", "id=", "id=1&id=2", "{\"id\":1}"] {
        call(&world, &path(attempt), body).await;
    }
    assert_eq!((polls(&world), fetch(&world, &id, 0).await.status), (0, 202));
}

#[tokio::test]
async fn a_call_about_another_task_or_solve_changes_neither() {
    let world = quiet(Duration::from_secs(60)).await;
    let (one, attempt, _) = sent(&world, "0x1").await;
    let (two, _, task) = sent(&world, "0x2").await;
    call(&world, &path(attempt), &format!("id={task}&code=x")).await;
    call(&world, &path(attempt), "id=987654321&code=x").await;
    let unknown = AttemptName { solve: SolveId::from_number(123_456_789_012_345), ..attempt };
    call(&world, &path(unknown), &format!("id={task}&code=x")).await;
    let stranger = AttemptName { nonce: Nonce::from_number(1), ..attempt };
    call(&world, &path(stranger), &format!("id={task}&code=x")).await;
    for id in [one, two] {
        assert_eq!(fetch(&world, &id, 0).await.status, 202);
    }
    assert_eq!(world.paid(), 2);
}

#[tokio::test]
async fn an_early_call_costs_a_question_and_the_next_one_lands_it() {
    // Long enough to be called while it is not ready, also on a busy machine.
    let solving = Duration::from_secs(3);
    let world = quiet(solving).await;
    let (id, attempt, task) = sent(&world, "0x1").await;
    call(&world, &path(attempt), &format!("id={task}&code=x")).await;
    assert_eq!(fetch(&world, &id, 0).await.status, 202);
    sleep(solving).await;
    call(&world, &path(attempt), &format!("id={task}&code=x")).await;
    assert_eq!(fetch(&world, &id, 50).await.status, 200);
}

#[tokio::test]
async fn a_replayed_call_after_the_end_changes_nothing() {
    let world = quiet(READY).await;
    let (id, attempt, task) = sent(&world, "0x1").await;
    sleep(LATER).await;
    call(&world, &path(attempt), &format!("id={task}&code=x")).await;
    let token = fetch(&world, &id, 50).await.text("token");
    let story = async || world.get(&format!("/v1/solves/{id}/explain"), WORKER).await.json();
    let before = story().await;
    for _ in 0..5 {
        call(&world, &path(attempt), &format!("id={task}&code=OTHER")).await;
    }
    assert_eq!(story().await["entries"], before["entries"]);
    assert_eq!((fetch(&world, &id, 0).await.text("token"), world.paid()), (token, 1));
}

#[tokio::test]
async fn a_call_names_the_task_of_a_lost_reply_and_nothing_is_paid_twice() {
    let world = quiet(READY).await;
    world.account.plan(Planned::next(Call::Submit, Fault::Drop).accepted());
    let (id, attempt, task) = sent(&world, "0x1").await;
    sleep(LATER).await;
    call(&world, &path(attempt), &format!("id={task}&code=x")).await;
    assert_eq!((fetch(&world, &id, 50).await.status, world.paid()), (200, 1));
}

#[tokio::test]
async fn without_the_setting_there_is_no_such_path() {
    let world = World::open().await;
    let name = AttemptName {
        solve: SolveId::from_number(123_456_789_012_345),
        attempt: 1,
        nonce: Nonce::from_number(1),
    };
    for key in ["", WORKER, ADMIN] {
        assert_eq!(world.get(&path(name), key).await.status, 404);
    }
}

#[tokio::test]
async fn calls_are_bounded_in_size_and_number() {
    let mut setting = Setting { pingback: true, ..Setting::default() };
    setting.limits.pingbacks = 3;
    let world = World::with(setting).await;
    let large = format!("id={}", "1".repeat(64 * 1024));
    assert_eq!(post(&world, "/-/pingback/x", &large).await.status, 413);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(post(&world, "/-/pingback/x", "id=1").await.status);
    }
    assert_eq!(seen, [200, 200, 429, 429]);
    assert_eq!(world.get("/healthz", "").await.status, 200);
}
