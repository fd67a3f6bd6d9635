use std::{collections::BTreeSet, fs, time::Duration};

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    money::Money,
    ports::Feedback,
    time::Timestamp,
};
use tempfile::TempDir;

use super::REWRITE_AT;
use crate::{
    account::Account,
    behaviour::{PollEffect, SubmitEffect},
    config::BehaviourConfig,
};

const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const SOLVE_TIME: Duration = Duration::from_secs(10);
const PRICE: Money = Money::from_micros(1_450);

fn account(dir: &TempDir) -> Account {
    let account = Account::new(BehaviourConfig::new(7).solving_in(SOLVE_TIME));
    account.restore_from(&dir.path().join("tasks.jsonl")).unwrap();
    account
}

fn turnstile(sitekey: &str) -> Challenge {
    let parts = ChallengeParts {
        sitekey: Some(sitekey.into()),
        pageurl: Some("https://shop.example.com/".parse().unwrap()),
        ..ChallengeParts::default()
    };
    Challenge::new(Kind::Turnstile, parts).unwrap()
}

fn submit(account: &Account, sitekey: &str, now: Timestamp) -> String {
    match account.submit(&turnstile(sitekey), None, None, now) {
        Some(SubmitEffect::Accepted(accepted)) => accepted.task.to_string(),
        other => panic!("{other:?}"),
    }
}

fn poll(account: &Account, task: &str, now: Timestamp) -> PollEffect {
    account.poll(task, None, now).unwrap()
}

fn spent(account: &Account) -> i64 {
    BehaviourConfig::new(7).balance.micros()
        - account.with(|behaviour| behaviour.balance()).micros()
}

#[test]
fn a_task_survives_its_process() {
    let dir = TempDir::new().unwrap();
    let task = submit(&account(&dir), "0x4", START);
    let next = account(&dir);
    assert_eq!(poll(&next, &task, START), PollEffect::NotReady);
    let answer = poll(&next, &task, START.plus(SOLVE_TIME));
    assert!(matches!(&answer, PollEffect::Solved(_, PRICE)), "{answer:?}");
    assert_eq!(poll(&account(&dir), &task, START.plus(SOLVE_TIME)), answer, "the same answer");
    assert_eq!(spent(&account(&dir)), PRICE.micros());
}

#[test]
fn a_refund_and_a_report_survive_too() {
    let dir = TempDir::new().unwrap();
    let (first, later) = (account(&dir), START.plus(SOLVE_TIME));
    let failed = submit(&first, "unsolvable-0x4", START);
    let solved = submit(&first, "0x4", START);
    assert!(matches!(poll(&first, &failed, later), PollEffect::Refused(_)));
    first.with(|behaviour| behaviour.report(&solved, Feedback::Bad, later)).unwrap();
    let next = account(&dir);
    assert!(matches!(poll(&next, &failed, later), PollEffect::Refused(_)));
    assert_eq!(spent(&next), PRICE.micros(), "refunded once");
    let again = next.with(|behaviour| behaviour.report(&solved, Feedback::Bad, later));
    assert_eq!(again.unwrap_err().as_str(), "ERROR_DUPLICATE_REPORT");
}

#[test]
fn two_processes_answer_for_each_others_tasks_and_never_give_one_id_twice() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (account(&dir), account(&dir));
    let tasks: Vec<_> =
        (0..20).map(|n| submit(if n % 2 == 0 { &one } else { &two }, "0x4", START)).collect();
    assert_eq!(tasks.iter().collect::<BTreeSet<_>>().len(), tasks.len());
    for task in &tasks {
        let answers = [&one, &two].map(|account| poll(account, task, START.plus(SOLVE_TIME)));
        assert!(matches!(answers[0], PollEffect::Solved(..)));
        assert_eq!(answers[0], answers[1]);
    }
    assert_eq!([spent(&one), spent(&two)], [20 * PRICE.micros(); 2]);
}

#[test]
fn a_line_that_was_cut_off_costs_no_other() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("tasks.jsonl");
    let whole = submit(&account(&dir), "0x4", START);
    let lines = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{lines}{{\"task\":{{\"id\":\"20")).unwrap();
    let next = account(&dir);
    let later = submit(&next, "0x4", START);
    for account in [next, account(&dir)] {
        for task in [&whole, &later] {
            assert_eq!(poll(&account, task, START), PollEffect::NotReady);
        }
    }
}

#[test]
fn the_file_stays_small_and_nothing_in_flight_is_lost_by_that() {
    let dir = TempDir::new().unwrap();
    let (one, other) = (account(&dir), account(&dir));
    let (mut now, mut tasks) = (START, 0);
    // An hour apart, so that each task is forgotten before the next one.
    for _ in 0..2 * REWRITE_AT / 300 {
        now = now.plus(Duration::from_secs(3600));
        submit(&one, "0x4", now);
        tasks += 1;
    }
    let size = fs::metadata(dir.path().join("tasks.jsonl")).unwrap().len();
    assert!(size < REWRITE_AT, "{size}");
    let last = submit(&one, "0x4", now);
    for account in [one, other, account(&dir)] {
        assert_eq!(poll(&account, &last, now), PollEffect::NotReady);
        assert_eq!(spent(&account), (tasks + 1) * PRICE.micros());
    }
}
