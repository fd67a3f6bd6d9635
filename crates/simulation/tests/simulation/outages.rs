//! Every row of the retry table, and outages of the provider or the account: no claim is lost, nothing is retried that
//! must not be, and recovery causes no burst.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    dead_letter::DeadLetterClass,
    ledger::{Entry, Event},
    money::Money,
    ports::Scope,
    retry::{Class, Effect, IN_PHP, Jitter, Profile, RetryTable, Rule, own},
    time::Timestamp,
};
use engine::{Outcome, Slots};
use simulator::{Call, Fault, Planned};

use simulation::stage::{Stage, open, seconds, served, story};

/// The fault that leads to this row.
fn faults(rule: &Rule) -> (Call, Fault) {
    let on_poll = [
        "ERROR_WRONG_CAPTCHA_ID",
        "ERROR_NO_SUCH_CAPCHA_ID",
        "ERROR_WRONG_ID_FORMAT",
        "ERROR_TOKEN_EXPIRED",
        "ERROR_PROXY_CONNECTION_FAILED",
        "CAPCHA_NOT_READY",
        "CAPTCHA_NOT_READY",
    ];
    match rule.code.as_ref() {
        own::NOT_SENT => (Call::Submit, Fault::Unreachable),
        own::AMBIGUOUS => (Call::Submit, Fault::Drop),
        own::HTTP_429 => (Call::Submit, Fault::TooManyRequests { retry_after: None }),
        own::NEVER_READY => (Call::Submit, Fault::NeverReady),
        "(any other code)" => (Call::Submit, Fault::code("ERROR_NOBODY_KNOWS")),
        code if on_poll.contains(&code) || rule.class == Class::TaskOver => {
            (Call::Poll, Fault::code(code))
        }
        code => (Call::Submit, Fault::code(code)),
    }
}

/// Runs one claim into the fault repeatedly; returns the times of its submissions and its outcome.
async fn run_into(stage: &Stage, (on, fault): (Call, Fault)) -> (Vec<Timestamp>, Outcome) {
    let engine = stage.gateway(1).await;
    stage.account.plan(Planned::next(on, fault).times(200));
    let id = open(&engine, "a").await;
    stage.pass(seconds(3000)).await;
    let submits = stage.provider.submits.lock().unwrap().clone();
    (submits, engine.fetch(&Scope::All, id, Duration::ZERO).await.unwrap())
}

/// Requirement 3: attempts and spacing of every row.
#[test]
fn every_row_of_the_retry_table_is_kept_to() {
    let table = engine::EngineConfig::default().retry;
    let rules: Vec<Rule> = table.rules().cloned().collect();
    assert!(rules.len() > 40, "{}", rules.len());
    for rule in rules {
        story(async |mut stage| {
            stage.config.deadline = seconds(2500);
            let (submits, outcome) = run_into(&stage, faults(&rule)).await;
            let code = &rule.code;
            let count = submits.len();
            match rule.class {
                Class::Permanent => {
                    assert_eq!(count, 1, "{code}: nothing follows a permanent error");
                    assert!(matches!(outcome, Outcome::Failed(_)), "{code}: {outcome:?}");
                }
                // No submission gets through at all: that is the provider's fault, and no claim fails for it.
                Class::Transient if rule.code == own::NOT_SENT => {
                    assert!(count <= 60, "{code}: {count}");
                    assert!(matches!(outcome, Outcome::Lapsed(_)), "{code}: {outcome:?}");
                }
                Class::Transient | Class::TaskOver => {
                    let most = usize::try_from(rule.max).unwrap() + 1;
                    assert_eq!(count, most, "{code}");
                    assert!(matches!(outcome, Outcome::Failed(_)), "{code}: {outcome:?}");
                    check_spacing(&rule, &submits);
                }
                Class::Account => {
                    let step = rule.floor.max(seconds(60));
                    let most = 2500 / step.as_secs() + 2;
                    assert!(count as u64 <= most && count > 1, "{code}: {count} of {most}");
                    let close = submits.windows(2).filter(|pair| pair[1].since(pair[0]) < step);
                    assert_eq!(close.count(), 0, "{code}: one probe per step");
                    assert_eq!(stage.dead_letters().await, 0, "{code}");
                    let lapsed = usize::from(matches!(outcome, Outcome::Lapsed(_)));
                    let kept = stage.dead_letters_of(DeadLetterClass::Lapsed).await;
                    assert_eq!(kept, lapsed, "{code}: it can be revived");
                }
                Class::Wait => {
                    assert!(count <= 60, "{code}: {count}");
                    assert!(!matches!(outcome, Outcome::Failed(_)) || count == 1, "{code}");
                }
            }
        });
    }
}

/// A new code needs one line in the table: no other part of the gateway knows codes by name.
#[test]
fn a_code_added_to_the_table_is_retried_and_slows_every_submission() {
    let wait = seconds(30);
    let added = Rule {
        code: "ERROR_EASY_NOW".into(),
        class: Class::Transient,
        max: 3,
        backoff: true,
        new_attempt: false,
        charged: Some(false),
        floor: wait,
        effect: Effect::SlowDown,
    };
    let lines = [IN_PHP, &[added]].concat();
    let (backoff, jitter) = (Profile::Default.backoff(), Jitter::default());
    let table = RetryTable::new(&lines, backoff, jitter, &BTreeMap::new()).unwrap();
    story(async |mut stage| {
        stage.config.retry = table;
        let engine = stage.gateway(1).await;
        stage.account.plan(Planned::next(Call::Submit, Fault::code("ERROR_EASY_NOW")));
        let first = open(&engine, "a").await;
        stage.pass(seconds(1)).await;
        let second = open(&engine, "b").await;
        stage.pass(seconds(100)).await;
        let submits = stage.provider.submits.lock().unwrap().clone();
        assert_eq!(submits.len(), 3, "{submits:?}");
        assert!(submits[1].since(submits[0]) >= wait, "{submits:?}");
        for id in [first, second] {
            let outcome = engine.fetch(&Scope::All, id, Duration::ZERO).await.unwrap();
            assert!(matches!(outcome, Outcome::Served { .. }), "{outcome:?}");
        }
    });
}

/// Each retry comes after its floor and within its backoff, plus the budget's second and the time a task takes.
fn check_spacing(rule: &Rule, submits: &[Timestamp]) {
    for (n, pair) in submits.windows(2).enumerate() {
        let gap = pair[1].since(pair[0]);
        let grown = if rule.backoff { 1_u64 << n.min(6) } else { 0 };
        let most = seconds(grown.min(60)).max(rule.floor) + seconds(16);
        assert!(gap >= rule.floor, "{}: retry {n} after {gap:?}", rule.code);
        assert!(gap <= most, "{}: retry {n} after {gap:?}", rule.code);
    }
}

/// The submissions that were retries, from the ledger.
fn retries(entries: &[Entry]) -> (Vec<Timestamp>, Vec<Timestamp>) {
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry.event {
            Event::Intent { attempt: 1, .. } => fresh.push(entry.at),
            Event::Intent { .. } => again.push(entry.at),
            _ => {}
        }
    }
    (fresh, again)
}

/// Requirement 3: an outage of ten minutes during a thousand claims.
#[test]
fn an_outage_of_ten_minutes_loses_nobody_and_ends_gently() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(20);
        stage.config.deadline = seconds(1800);
        let engine = stage.gateway(1).await;
        let mut ids = Vec::new();
        let mut recovered = Timestamp::default();
        for n in 0..1000 {
            if n == 300 {
                stage.account.plan(Planned::next(Call::Submit, Fault::Unreachable).at_rate(1.0));
            }
            if n == 900 {
                stage.account.faults(simulator::FaultPlan::clear);
                recovered = stage.clock.now();
            }
            ids.push(open(&engine, &format!("k{n}")).await);
            stage.pass(seconds(1)).await;
            if n == 600 {
                let health = engine.health();
                assert!(health.ready, "claims are admitted");
                assert!(health.troubles.iter().any(|t| t.contains("provider")), "{health:?}");
            }
        }
        stage.pass(seconds(1500)).await;
        for id in ids {
            let claim = engine.find_claim(&Scope::All, id).await.unwrap();
            assert!(claim.token.is_some(), "{claim:?}");
        }
        assert_eq!((stage.paid(), stage.dead_letters().await), (1000, 0));
        assert!(engine.health().troubles.is_empty());
        let submits = stage.provider.submits.lock().unwrap().clone();
        let outage = |at: &&Timestamp| recovered.since(**at) < seconds(580) && **at < recovered;
        let probes = submits.iter().filter(outage).count();
        assert!(probes <= 12, "{probes} submissions into the outage");
        let first =
            submits.iter().filter(|at| **at >= recovered && at.since(recovered) < seconds(62));
        let first: Vec<_> = first.collect();
        for pair in first.windows(11) {
            assert!(pair[10].since(*pair[0]) >= Duration::from_millis(450), "a burst: {pair:?}");
        }
        let (fresh, again) = retries(&stage.entries().await);
        for from in &again {
            for window in [1, 10, 60, 600] {
                let within = |all: &[Timestamp]| {
                    all.iter().filter(|at| *at >= from && at.since(*from) < seconds(window)).count()
                };
                let most = within(&fresh) / 10 + usize::try_from(window).unwrap() + 11;
                assert!(within(&again) <= most, "{} retries in {window} s", within(&again));
            }
        }
    });
}

/// Requirement 4: an empty account for an hour.
#[test]
fn an_account_that_is_empty_for_an_hour_kills_nothing() {
    story(async |mut stage| {
        stage.config.deadline = seconds(7200);
        let engine = stage.gateway(1).await;
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        let mut ids = Vec::new();
        for n in 0..200 {
            ids.push(open(&engine, &format!("k{n}")).await);
            stage.pass(seconds(18)).await;
        }
        let probes = stage.provider.submits.lock().unwrap().len();
        assert!(probes <= 61, "{probes} probes in an hour");
        let trouble = engine.health().troubles.join(", ");
        assert!(trouble.contains("ERROR_ZERO_BALANCE"), "{trouble}");
        stage.account.with(|behaviour| behaviour.set_balance(Money::from_micros(10_000_000)));
        stage.pass(seconds(300)).await;
        for id in ids {
            let claim = engine.find_claim(&Scope::All, id).await.unwrap();
            assert!(claim.token.is_some(), "{claim:?}");
        }
        assert_eq!((stage.paid(), stage.dead_letters().await), (200, 0));
        let (fresh, again) = retries(&stage.entries().await);
        assert!(fresh.len() + again.len() <= 200 + 62);
    });
}

/// Bans last as long as the provider documents.
#[test]
fn a_ban_is_waited_out() {
    for (code, length) in [
        ("ERROR: 1001", 600),
        ("ERROR: 1002", 300),
        ("ERROR: 1003", 60),
        ("ERROR: 1004", 600),
        ("ERROR: 1005", 300),
        ("IP_BANNED", 300),
    ] {
        story(async |mut stage| {
            stage.config.deadline = seconds(3600);
            let engine = stage.gateway(1).await;
            stage.fault(Call::Submit, Fault::code(code), 1);
            let id = open(&engine, "a").await;
            served(&engine, id, seconds(1000)).await;
            let submits = stage.provider.submits.lock().unwrap().clone();
            assert_eq!(submits.len(), 2, "{code}");
            assert!(submits[1].since(submits[0]) >= seconds(length), "{code}: {submits:?}");
        });
    }
}

/// A reply to a request sent before the ban does not show that the ban is over.
#[test]
fn a_ban_is_not_lifted_by_a_reply_to_an_earlier_request() {
    story(async |mut stage| {
        stage.config.deadline = seconds(3600);
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR: 1001"), 1);
        for n in 0..20 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(5)).await;
        assert!(engine.account_trouble().is_some());
        let before = stage.provider.submits.lock().unwrap().len();
        stage.pass(seconds(590)).await;
        assert_eq!(stage.provider.submits.lock().unwrap().len(), before, "a ban of ten minutes");
        stage.pass(seconds(60)).await;
        assert_eq!((stage.paid(), stage.dead_letters().await), (20, 0));
    });
}

/// Paid tasks survive an outage that also affects polls.
#[test]
fn an_outage_of_polls_loses_no_paid_task() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let mut ids = Vec::new();
        for n in 0..10 {
            let ask = engine::ClaimRequest {
                deadline: Some(seconds(1200)),
                ..simulation::stage::claim_request(&format!("k{n}"))
            };
            ids.push(simulation::stage::open_with(&engine, ask).await);
        }
        stage.pass(seconds(2)).await;
        assert_eq!(stage.paid(), 10);
        stage.account.plan(Planned::next(Call::Poll, Fault::Status(502)).at_rate(1.0));
        stage.pass(seconds(330)).await;
        stage.account.faults(simulator::FaultPlan::clear);
        stage.pass(seconds(60)).await;
        assert_eq!(stage.paid(), 10, "nothing was bought again");
        // Their tokens are as old as the outage was long; the test is that polling continued to the end.
        let entries = stage.entries().await;
        let found =
            entries.iter().filter(|entry| matches!(entry.event, Event::Ready { .. })).count();
        assert_eq!(found, 10);
    });
}

/// A slow-down reply to one submission slows all of them.
#[test]
fn a_slow_down_reply_to_one_slows_all() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("MAX_USER_TURN"), 1);
        open(&engine, "first").await;
        stage.pass(seconds(1)).await;
        for n in 0..10 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(8)).await;
        assert_eq!(stage.provider.submits.lock().unwrap().len(), 1, "ten seconds for all");
        stage.pass(seconds(30)).await;
        assert_eq!(stage.paid(), 11);
    });
}

/// A single claim waits for an unreachable provider instead of failing after three tries.
#[test]
fn a_lone_claim_outlives_an_unreachable_provider() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.account.plan(Planned::next(Call::Submit, Fault::Unreachable).at_rate(1.0));
        let id = open(&engine, "a").await;
        stage.pass(seconds(60)).await;
        stage.account.faults(simulator::FaultPlan::clear);
        served(&engine, id, seconds(100)).await;
    });
}

/// A refused submission says nothing about polling: what is paid for is fetched at its usual time.
#[test]
fn paid_tasks_are_polled_while_a_refused_key_pauses_submissions() {
    for code in ["ERROR_KEY_DOES_NOT_EXIST", "IP_BANNED", "ERROR: 1004", "ERROR: 1005"] {
        story(async |stage| {
            let engine = stage.gateway(1).await;
            let mut paid = Vec::new();
            for n in 0..10 {
                paid.push(open(&engine, &format!("k{n}")).await);
            }
            stage.pass(seconds(2)).await;
            assert_eq!(stage.paid(), 10);
            stage.account.plan(Planned::next(Call::Submit, Fault::code(code)).at_rate(1.0));
            open(&engine, "refused").await;
            stage.pass(seconds(25)).await;
            for id in paid {
                served(&engine, id, Duration::ZERO).await;
            }
            let troubles = engine.health().troubles;
            assert_eq!(troubles.len(), 1, "{troubles:?}");
            let expected = format!("account trouble {code}: submissions paused");
            assert!(troubles[0].starts_with(&expected), "{troubles:?}");
            assert_eq!(stage.provider.submits.lock().unwrap().len(), 11);
        });
    }
}

/// When a poll itself is refused, all polls pause, and one at a time finds out whether that is over.
#[test]
fn refused_polls_are_probed_one_at_a_time() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        for n in 0..20 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(3)).await;
        let code = "ERROR_KEY_DOES_NOT_EXIST";
        stage.account.plan(Planned::next(Call::Poll, Fault::code(code)).at_rate(1.0));
        stage.pass(seconds(20)).await;
        let troubles = engine.health().troubles.join(", ");
        assert!(troubles.contains("polling of paid tasks paused"), "{troubles}");
        let before = stage.provider.polls.lock().unwrap().len();
        stage.pass(seconds(300)).await;
        let probes = stage.provider.polls.lock().unwrap().len() - before;
        assert!((3..=6).contains(&probes), "{probes} polls in five minutes, one a minute");
        stage.account.faults(simulator::FaultPlan::clear);
        stage.pass(seconds(90)).await;
        let ready = |entry: &&Entry| matches!(entry.event, Event::Ready { .. });
        let entries = stage.entries().await;
        assert_eq!(entries.iter().filter(ready).count(), 20, "every paid task was found");
        assert_eq!(engine.health().troubles.len(), 0, "{:?}", engine.health().troubles);
    });
}

/// A polling ban stops all polls.
#[test]
fn a_polling_ban_is_respected() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        for n in 0..20 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(4)).await;
        stage.fault(Call::Poll, Fault::code("ERROR: 1005"), 1);
        stage.pass(seconds(5)).await;
        let before = stage.provider.polls.lock().unwrap().len();
        stage.pass(seconds(290)).await;
        let during = stage.provider.polls.lock().unwrap().len() - before;
        assert!(during <= 2, "{during} questions into the ban");
    });
}
