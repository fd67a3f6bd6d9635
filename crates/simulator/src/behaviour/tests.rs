//! The simulated provider's behaviour, with explicit times.

use std::collections::BTreeMap as Map;

use domain::{
    challenge::{ChallengeParts, Kind},
    secret::Secret,
    site::PageUrl,
};

use super::*;
use crate::{answers::task_of, pace};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn turnstile(sitekey: &str) -> Challenge {
    let pageurl = PageUrl::parse("https://shop.example.com/login").unwrap();
    let draft = ChallengeParts {
        sitekey: Some(sitekey.to_owned()),
        pageurl: Some(pageurl),
        ..ChallengeParts::default()
    };
    Challenge::new(Kind::Turnstile, draft).unwrap()
}

fn image(bytes: &[u8]) -> Challenge {
    let files = Map::from([("body".to_owned(), bytes.to_vec())]);
    Challenge::new(Kind::Image, ChallengeParts { files, ..ChallengeParts::default() }).unwrap()
}

fn quick() -> BehaviourConfig {
    BehaviourConfig::new(42).solving_in(10 * SECOND)
}

fn accepted(effect: SubmitEffect) -> Accepted {
    match effect {
        SubmitEffect::Accepted(accepted) => accepted,
        SubmitEffect::Refused(code) => panic!("refused with {code}"),
    }
}

fn submit(behaviour: &mut Behaviour, challenge: &Challenge, now: Timestamp) -> SubmitEffect {
    behaviour.submit(challenge, None, Fate::Solved, now)
}

fn text(effect: PollEffect) -> String {
    match effect {
        PollEffect::Solved(made, _) => made.answer.text.expose().to_owned(),
        PollEffect::NotReady => "not ready".to_owned(),
        PollEffect::Refused(code) => code.to_string(),
    }
}

#[test]
fn a_task_is_ready_when_its_time_is_up_and_its_token_names_it() {
    let mut behaviour = Behaviour::new(quick());
    let task = accepted(submit(&mut behaviour, &turnstile("k"), at(100))).task;
    assert_eq!(behaviour.poll(task.as_str(), at(109)), PollEffect::NotReady);
    let token = text(behaviour.poll(task.as_str(), at(110)));
    assert_eq!(task_of(&token), Some(task.clone()));
    assert!(task.as_str().bytes().all(|b| b.is_ascii_digit()) && task.as_str().len() >= 10);
    assert_eq!(behaviour.ledger().answered[&task], 1);
}

#[test]
fn the_same_seed_and_the_same_calls_give_the_same_answers() {
    let history = |seed: u64| {
        let mut behaviour = Behaviour::new(BehaviourConfig::new(seed));
        let mut answers = Vec::new();
        for n in 0..50 {
            let task = accepted(submit(&mut behaviour, &turnstile("k"), at(n))).task;
            answers.push(text(behaviour.poll(task.as_str(), at(n + 60))));
        }
        (answers, behaviour.ledger().clone())
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7).0, history(8).0);
}

#[test]
fn a_full_plan_refuses_until_a_thread_is_free() {
    for (captchaai, code) in [(false, "ERROR_NO_SLOT_AVAILABLE"), (true, "ERROR_ZERO_BALANCE")] {
        let config = BehaviourConfig { threads: Some(2), captchaai, ..quick() };
        let mut behaviour = Behaviour::new(config);
        accepted(submit(&mut behaviour, &turnstile("k"), at(0)));
        accepted(submit(&mut behaviour, &turnstile("k"), at(5)));
        let refused = submit(&mut behaviour, &turnstile("k"), at(9));
        assert_eq!(refused, SubmitEffect::Refused(code.into()));
        assert_eq!(behaviour.threads(at(9)), Threads { total: 2, working: 2 });
        accepted(submit(&mut behaviour, &turnstile("k"), at(10)));
        assert_eq!(behaviour.ledger().refused[&code.into()], 1);
        assert_eq!(behaviour.ledger().received_submits, 4);
    }
}

#[test]
fn every_accepted_task_is_charged_and_an_empty_account_refuses() {
    let price = pace::price(&Kind::Turnstile);
    let balance = Money::from_micros(2 * price.micros());
    let mut behaviour = Behaviour::new(BehaviourConfig { balance, ..quick() });
    let first = accepted(submit(&mut behaviour, &turnstile("k"), at(0)));
    accepted(submit(&mut behaviour, &turnstile("unsolvable-k"), at(0)));
    assert_eq!((first.cost, behaviour.balance()), (price, Money::ZERO));
    let refused = submit(&mut behaviour, &turnstile("k"), at(1));
    assert_eq!(refused, SubmitEffect::Refused("ERROR_ZERO_BALANCE".into()));
    assert_eq!(behaviour.ledger().charged, balance);
}

#[test]
fn an_unsolvable_task_is_refunded_once() {
    let mut behaviour = Behaviour::new(quick());
    let before = behaviour.balance();
    let lost = accepted(submit(&mut behaviour, &turnstile("unsolvable-k"), at(0)));
    assert_eq!(lost.ready_at, None);
    assert_eq!(text(behaviour.poll(lost.task.as_str(), at(5))), "not ready");
    for _ in 0..3 {
        assert_eq!(text(behaviour.poll(lost.task.as_str(), at(11))), "ERROR_CAPTCHA_UNSOLVABLE");
    }
    assert_eq!((behaviour.balance(), behaviour.ledger().charged), (before, Money::ZERO));
    assert_eq!(behaviour.ledger().refunded, lost.cost);
}

#[test]
fn sitekeys_for_trying_by_hand_are_slow_or_never_ready() {
    let mut behaviour = Behaviour::new(quick());
    let slow = accepted(submit(&mut behaviour, &turnstile("slow-k"), at(0))).task;
    let never = accepted(submit(&mut behaviour, &turnstile("never-ready-k"), at(0))).task;
    assert_eq!(text(behaviour.poll(slow.as_str(), at(69))), "not ready");
    assert_eq!(task_of(&text(behaviour.poll(slow.as_str(), at(70)))), Some(slow));
    accepted(submit(&mut behaviour, &turnstile("k"), at(86_400)));
    assert_eq!(text(behaviour.poll(never.as_str(), at(86_400))), "not ready");
}

#[test]
fn a_result_can_be_fetched_again_for_ten_minutes() {
    let mut behaviour = Behaviour::new(quick());
    let task = accepted(submit(&mut behaviour, &turnstile("k"), at(0))).task;
    let first = text(behaviour.poll(task.as_str(), at(10)));
    assert_eq!(text(behaviour.poll(task.as_str(), at(610))), first);
    assert_eq!(text(behaviour.poll(task.as_str(), at(611))), "ERROR_WRONG_CAPTCHA_ID");
    assert_eq!(text(behaviour.poll("2999999999", at(0))), "ERROR_WRONG_CAPTCHA_ID");
    assert_eq!(text(behaviour.poll("12x", at(0))), "ERROR_WRONG_ID_FORMAT");
}

#[test]
fn what_nobody_can_ask_for_is_forgotten() {
    let mut behaviour = Behaviour::new(quick());
    for n in 0..500 {
        accepted(submit(&mut behaviour, &turnstile("k"), at(n * 60)));
        behaviour.threads(at(n * 60));
    }
    assert!(behaviour.tasks.len() < 20, "{}", behaviour.tasks.len());
    assert_eq!(behaviour.ledger().accepted.len(), 500);
}

#[test]
fn names_are_never_given_twice_even_after_a_restart() {
    let first = accepted(submit(&mut Behaviour::new(quick()), &turnstile("k"), at(3_000_000)));
    let mut restarted = Behaviour::new(quick());
    let second = accepted(submit(&mut restarted, &turnstile("k"), at(3_000_001)));
    let third = accepted(submit(&mut restarted, &turnstile("k"), at(3_000_001)));
    assert!(first.task < second.task && second.task < third.task);
}

#[test]
fn the_same_picture_has_the_same_text_and_another_one_another() {
    let mut behaviour = Behaviour::new(quick());
    let mut read = |bytes: &[u8]| {
        let task = accepted(submit(&mut behaviour, &image(bytes), at(0))).task;
        text(behaviour.poll(task.as_str(), at(10)))
    };
    assert_eq!(read(b"one picture"), read(b"one picture"));
    assert_ne!(read(b"one picture"), read(b"two picture"));
}

#[test]
fn a_report_is_taken_once_and_in_time() {
    let mut behaviour = Behaviour::new(quick());
    let task = accepted(submit(&mut behaviour, &turnstile("k"), at(0))).task;
    let late = accepted(submit(&mut behaviour, &turnstile("k"), at(0))).task;
    let mut report = |id: &str, now| behaviour.report(id, Feedback::Bad, now);
    assert_eq!(report(task.as_str(), at(5)), Err("ERROR_REPORT_NOT_RECORDED".into()));
    assert_eq!(report(task.as_str(), at(20)), Ok(()));
    assert_eq!(report(task.as_str(), at(21)), Err("ERROR_DUPLICATE_REPORT".into()));
    assert_eq!(report(late.as_str(), at(901)), Err("ERROR_REPORT_NOT_RECORDED".into()));
    assert_eq!(report("77", at(20)), Err("ERROR_WRONG_CAPTCHA_ID".into()));
    assert_eq!(behaviour.ledger().reports.len(), 1);
}

#[test]
fn a_task_given_up_frees_its_thread_and_is_refunded() {
    let mut behaviour = Behaviour::new(BehaviourConfig { threads: Some(1), ..quick() });
    let task = accepted(submit(&mut behaviour, &turnstile("k"), at(0))).task;
    behaviour.give_up(task.as_str(), at(3));
    assert_eq!(text(behaviour.poll(task.as_str(), at(3))), "ERROR_CAPTCHA_UNSOLVABLE");
    accepted(submit(&mut behaviour, &turnstile("k"), at(3)));
    let solved = accepted(submit(&mut behaviour, &turnstile("k"), at(13))).task;
    behaviour.give_up(solved.as_str(), at(24));
    assert_eq!(task_of(&text(behaviour.poll(solved.as_str(), at(24)))), Some(solved));
}

#[test]
fn only_the_accounts_own_key_is_taken() {
    let own = "k".repeat(32);
    let config = BehaviourConfig { key: Some(Secret::new(&*own)), ..quick() };
    let mut behaviour = Behaviour::new(config);
    let mut check = |key: Option<&str>| behaviour.check_key(key, at(0)).map_err(String::from);
    assert_eq!(check(Some(&own)), Ok(()));
    assert_eq!(check(Some(&"x".repeat(32))), Err("ERROR_KEY_DOES_NOT_EXIST".to_owned()));
    assert_eq!(check(Some("short")), Err("ERROR_WRONG_USER_KEY".to_owned()));
    assert_eq!(check(None), Err("ERROR_WRONG_USER_KEY".to_owned()));
}

#[test]
fn bans_are_in_force_only_when_switched_on() {
    for bans in [false, true] {
        let mut behaviour = Behaviour::new(BehaviourConfig { bans, ..quick() });
        let refused =
            (0..100).filter(|_| submit(&mut behaviour, &turnstile("k"), at(0)) == banned()).count();
        assert_eq!(refused, if bans { 40 } else { 0 });
    }
}

fn banned() -> SubmitEffect {
    SubmitEffect::Refused("MAX_USER_TURN".into())
}
