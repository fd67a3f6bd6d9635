//! Single scenarios in virtual time: the invariants that need a clock, a crash or lost notifications.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    claim::ClaimState,
    dead_letter::DeadLetterClass,
    id::ClaimId,
    ledger::{Entry, Event},
    money::Money,
    ports::{Notifier, Scope, Subscription},
    solve::TAKEOVER_GRACE,
};
use engine::{FixedPolling, Outcome, Slots};
use simulator::{BehaviourConfig, Call, Fault, Planned};
use tokio::time::Instant;

use simulation::stage::{
    LostNotifications, Stage, claim_request, open, seconds, served, settled_at, story,
};

/// I14. Callers arrive at any moment of the second between two reads.
#[test]
fn with_every_hint_lost_a_caller_is_answered_within_the_reread_bound() {
    story(async |mut stage| {
        stage.backend.notifier = Arc::new(LostNotifications);
        let engine = stage.gateway(1).await;
        let mut ids = Vec::new();
        for n in 0..40 {
            ids.push(open(&engine, &format!("k{n}")).await);
        }
        let waiting = ids.into_iter().enumerate().map(async |(n, id)| {
            stage.pass(Duration::from_millis(37 * u64::try_from(n).unwrap())).await;
            served(&engine, id, seconds(60)).await;
            stage.clock.now().since(settled_at(&stage.entries().await, id))
        });
        let late = futures_util::future::join_all(waiting).await;
        let (least, most) = (late.iter().min().unwrap(), late.iter().max().unwrap());
        assert!(*most <= seconds(1), "{late:?}");
        assert!(*least < *most && *most > Duration::from_millis(500), "no hint came: {late:?}");
    });
}

/// I14, the other half: with notifications no timer delays the caller.
#[test]
fn a_hint_wakes_the_caller_at_once() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(60)).await;
        let late = stage.clock.now().since(settled_at(&stage.entries().await, id));
        assert!(late <= Duration::from_millis(2), "{late:?}");
    });
}

/// Forwards notifications and records their times.
#[derive(Debug)]
struct RecordingNotifier {
    notifier: Arc<dyn Notifier>,
    rung: Mutex<BTreeMap<ClaimId, Instant>>,
}

impl Notifier for RecordingNotifier {
    fn notify(&self, claim: ClaimId) {
        self.rung.lock().unwrap().entry(claim).or_insert_with(Instant::now);
        self.notifier.notify(claim);
    }

    fn subscribe(&self, claim: ClaimId) -> Subscription {
        self.notifier.subscribe(claim)
    }
}

/// Requirement 5, in real time: the test prints the median (below 2 ms unless the machine is overloaded); the asserted
/// bound is generous.
#[test]
fn a_waiting_caller_wakes_within_moments_of_the_settle() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let ms = Duration::from_millis;
        let mut stage = Stage::with(BehaviourConfig::new(3).solving_in(ms(40)));
        let polling = FixedPolling { first: ms(60), interval: ms(20), min_gap: ms(10), most: 20 };
        stage.config.polling = polling.into();
        let notifier = Arc::clone(&stage.backend.notifier);
        let chimes = Arc::new(RecordingNotifier { notifier, rung: Mutex::default() });
        stage.backend.notifier = Arc::clone(&chimes) as Arc<dyn Notifier>;
        let engine = stage.gateway(1).await;
        let mut lags = Vec::new();
        for n in 0..40 {
            let id = open(&engine, &format!("k{n}")).await;
            served(&engine, id, seconds(10)).await;
            lags.push(chimes.rung.lock().unwrap()[&id].elapsed());
        }
        lags.sort_unstable();
        eprintln!("woken {:?} after the settle (median), {:?} at most", lags[20], lags[39]);
        assert!(lags[20] < ms(100), "{lags:?}");
    });
}

/// I15.
#[test]
fn a_caller_who_hangs_up_abandons_nothing() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let id = open(&engine, "a").await;
        tokio::time::timeout(seconds(3), engine.fetch(&Scope::All, id, seconds(60)))
            .await
            .unwrap_err();
        stage.pass(seconds(20)).await;
        served(&engine, id, Duration::ZERO).await;
        assert_eq!(stage.paid(), 1);
    });
}

/// I15 with a withdrawal: the paid token serves the next claim.
#[test]
fn a_withdrawn_claims_token_serves_the_next_one() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let first = open(&engine, "a").await;
        stage.pass(seconds(2)).await;
        assert_eq!(
            engine.withdraw(&Scope::All, first, None).await.unwrap().state,
            ClaimState::Withdrawn
        );
        stage.pass(seconds(20)).await;
        let outcome = engine.claim(claim_request("b")).await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::Served { .. }), "{outcome:?}");
        assert_eq!(stage.paid(), 1);
    });
}

/// The claim, its lease and its intent are stored, and the gateway dies before its submission arrives.
#[test]
fn a_crash_between_the_admission_and_its_submission_leads_to_one_authorised_attempt() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(5);
        let engine = stage.gateway(1).await;
        stage.pass(seconds(1)).await;
        let began = stage.clock.now();
        let id = open(&engine, "a").await;
        engine.crash();
        let intents = |entries: &[Entry]| {
            entries.iter().filter(|entry| matches!(entry.event, Event::Intent { .. })).count()
        };
        assert_eq!(intents(&stage.entries().await), 1);
        let next = stage.gateway(2).await;
        served(&next, id, seconds(60)).await;
        let entries = stage.entries().await;
        let authorised = |entry: &&Entry| matches!(entry.event, Event::Authorised { .. });
        let authorised: Vec<_> = entries.iter().filter(authorised).collect();
        assert_eq!((authorised.len(), intents(&entries)), (1, 2));
        // The lease began before the admission, and was renewed at most a third of its term earlier.
        assert!(authorised[0].at.since(began) >= seconds(9) + TAKEOVER_GRACE);
        assert_eq!(stage.paid(), 1, "the first had not arrived");
    });
}

/// I16.
#[test]
fn a_dead_gateways_solve_is_taken_over_within_lease_and_sweep() {
    story(async |stage| {
        let first = stage.gateway(1).await;
        let second = stage.gateway(2).await;
        let id = open(&first, "a").await;
        stage.pass(seconds(2)).await;
        first.crash();
        let died = stage.clock.now();
        served(&second, id, seconds(60)).await;
        let took = stage.clock.now().since(died);
        assert!(took <= seconds(18), "{took:?}");
        assert_eq!(stage.paid(), 1);
    });
}

/// P13.
#[test]
fn a_drained_gateway_hands_over_at_once_and_loses_nothing() {
    story(async |mut stage| {
        stage.config.drain_grace = seconds(1);
        let first = stage.gateway(1).await;
        let second = stage.gateway(2).await;
        let id = open(&first, "a").await;
        stage.pass(seconds(2)).await;
        first.drain().await;
        assert!(
            first.claim(claim_request("b")).await.is_err(),
            "a draining gateway takes nothing new"
        );
        let drained = stage.clock.now();
        served(&second, id, seconds(60)).await;
        let took = stage.clock.now().since(drained);
        assert!(took <= seconds(8), "the solve itself takes 8 s: {took:?}");
        assert_eq!(stage.paid(), 1);
    });
}

/// I17.
#[test]
fn polls_stay_within_their_number_and_gap_and_none_follows_the_end() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::NeverReady, 1);
        let lost = open(&engine, "never").await;
        stage.pass(seconds(1)).await;
        let found = open(&engine, "soon").await;
        served(&engine, found, seconds(60)).await;
        stage.pass(seconds(1_200)).await;
        let polls = stage.provider.polls.lock().unwrap().clone();
        let tasks: std::collections::BTreeSet<_> =
            polls.iter().map(|(task, _)| task.clone()).collect();
        assert_eq!(tasks.len(), 2);
        for task in tasks {
            let times: Vec<_> =
                polls.iter().filter(|(t, _)| *t == task).map(|(_, at)| *at).collect();
            assert!(times.len() <= 20, "{} polls", times.len());
            assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= seconds(1)));
        }
        let ended = settled_at(&stage.entries().await, found);
        let after = polls
            .iter()
            .filter(|(_, at)| *at > ended)
            .map(|(task, _)| task)
            .collect::<std::collections::BTreeSet<_>>();
        assert_eq!(after.len(), 1, "only the task that is never ready is polled again");
        assert!(matches!(
            engine.fetch(&Scope::All, lost, Duration::ZERO).await.unwrap(),
            Outcome::Failed(_)
        ));
    });
}

/// I18.
#[test]
fn retry_after_is_a_floor() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::TooManyRequests { retry_after: Some(7) }, 1);
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(60)).await;
        let submits = stage.provider.submits.lock().unwrap().clone();
        assert_eq!(submits.len(), 2);
        assert!(submits[1].since(submits[0]) >= seconds(7));
    });
}

/// I18, when it is unknown whether the submission was accepted.
#[test]
fn retry_after_is_a_floor_after_a_lost_reply_too() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        *stage.provider.retry_after.lock().unwrap() = Some(seconds(9));
        stage.fault(Call::Submit, Fault::Status(503), 1);
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(60)).await;
        let submits = stage.provider.submits.lock().unwrap().clone();
        assert_eq!(submits.len(), 2, "authorised once");
        assert!(submits[1].since(submits[0]) >= seconds(9), "{submits:?}");
    });
}

/// I20: repeated crashes during a submission do not lead to repeated submissions.
#[test]
fn a_solve_whose_submission_kills_the_gateway_again_and_again_is_given_up() {
    story(async |stage| {
        stage.fault(Call::Submit, Fault::Hang, 100);
        let mut engine = stage.gateway(0).await;
        let id = open(&engine, "a").await;
        for life in 1..=3 {
            stage.pass(seconds(3) + TAKEOVER_GRACE).await;
            engine.crash();
            stage.pass(seconds(16)).await;
            engine = stage.gateway(life).await;
        }
        stage.pass(seconds(3) + TAKEOVER_GRACE).await;
        let outcome = engine.fetch(&Scope::All, id, Duration::ZERO).await.unwrap();
        let Outcome::Failed(claim) = outcome else { panic!("{outcome:?}") };
        assert_eq!(claim.code.unwrap().as_str(), "AMBIGUOUS", "long before its deadline");
        assert_eq!(stage.provider.submits.lock().unwrap().len(), 2, "one, and one authorised");
    });
}

/// I22.
#[test]
fn tasks_in_flight_stay_within_the_slots() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(3);
        let engine = stage.gateway(1).await;
        let mut ids = Vec::new();
        for n in 0..12 {
            ids.push(open(&engine, &format!("key-{n}")).await);
        }
        let mut most = 0;
        for _ in 0..600 {
            stage.pass(Duration::from_millis(100)).await;
            let now = stage.clock.now();
            most = most.max(stage.account.with(|behaviour| behaviour.threads(now)).working);
        }
        assert_eq!(most, 3);
        for id in ids {
            served(&engine, id, Duration::ZERO).await;
        }
    });
}

/// I28.
#[test]
fn an_empty_account_kills_nothing_and_is_probed_once_per_step() {
    story(async |mut stage| {
        stage.config.deadline = seconds(1_000);
        let engine = stage.gateway(1).await;
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        let mut ids = Vec::new();
        for n in 0..10 {
            ids.push(open(&engine, &format!("key-{n}")).await);
        }
        stage.pass(seconds(100)).await;
        // Submissions already in flight when the trouble begins do not count as probes.
        let submits = stage.provider.submits.lock().unwrap().clone();
        let probes = submits.iter().filter(|at| at.since(submits[0]) > seconds(5)).count();
        assert_eq!(probes, 1, "one a minute");
        assert!(engine.account_trouble().is_some());
        stage.account.with(|behaviour| behaviour.set_balance(Money::from_micros(1_000_000)));
        stage.pass(seconds(200)).await;
        for id in ids {
            served(&engine, id, Duration::ZERO).await;
        }
        assert_eq!(stage.dead_letters().await, 0);
        assert_eq!(engine.account_trouble(), None);
    });
}

/// I28, the long version: claims that lapse during an outage do not fail, and do not delay the claims after it.
#[test]
fn an_outage_longer_than_the_deadline_fails_nothing_and_delays_nothing() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        for n in 0..60 {
            open(&engine, &format!("during-{n}")).await;
            stage.pass(seconds(10)).await;
        }
        stage.account.with(|behaviour| behaviour.set_balance(Money::from_micros(1_000_000)));
        let after = open(&engine, "after").await;
        served(&engine, after, seconds(100)).await;
        assert_eq!(stage.dead_letters().await, 0);
        let entries = stage.entries().await;
        // Some of the later ones get a token that nobody fetches.
        let allotted = |entry: &&Entry| matches!(entry.event, Event::Allotted { .. });
        let served: BTreeSet<_> =
            entries.iter().filter(allotted).map(|entry| entry.claim).collect();
        let ended = |wanted| {
            let left = entries.iter().filter(|entry| !served.contains(&entry.claim));
            left.filter(
                |entry| matches!(entry.event, Event::Ended { state, .. } if state == wanted),
            )
            .count()
        };
        let lapsed = ended(ClaimState::Lapsed);
        let kept = stage.dead_letters_of(DeadLetterClass::Lapsed).await;
        assert_eq!((ended(ClaimState::Failed), lapsed), (0, kept));
        assert!(lapsed > 30, "{lapsed}");
    });
}

/// The provider's `Retry-After` on a poll cannot delay a paid task until it is forgotten.
#[test]
fn no_answer_parks_a_paid_task() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Poll, Fault::TooManyRequests { retry_after: Some(86_400) }, 1);
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(100)).await;
    });
}

/// P4: a slow reply brings a token that counts as old as its submission.
#[test]
fn a_slow_reply_does_not_make_a_token_younger() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.account.plan(Planned::next(Call::Submit, Fault::Trickle(25_000)).accepted());
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(100)).await;
        let claim = engine.find_claim(&Scope::All, id).await.unwrap();
        let ready = stage.account.ledger().accepted[0].ready_at.unwrap();
        assert!(claim.token.unwrap().ready_lower <= ready);
    });
}

/// A late answer is banked and closes its dead letter.
#[test]
fn a_late_answer_is_banked_and_closes_its_dead_letter() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let mut hasty = claim_request("hasty");
        hasty.deadline = Some(seconds(4));
        let outcome = engine.claim(hasty).await.unwrap().outcome;
        let Outcome::Waiting { claim, .. } = outcome else { panic!("{outcome:?}") };
        let outcome = engine.fetch(&Scope::All, claim.id, seconds(6)).await.unwrap();
        assert!(matches!(outcome, Outcome::Lapsed(_)), "{outcome:?}");
        stage.pass(seconds(20)).await;
        let closed = |entry: &Entry| matches!(entry.event, Event::DeadLetterClosed);
        assert!(stage.entries().await.iter().any(closed));
        let outcome = engine.claim(claim_request("next")).await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::Served { .. }), "{outcome:?}");
        assert_eq!(stage.paid(), 1);
    });
}

/// Two processes may draw the same id: the second draws again.
#[test]
fn a_name_that_is_taken_is_drawn_again() {
    story(async |stage| {
        // Equal seeds draw equal ids.
        let (first, second) = (stage.gateway(1).await, stage.gateway(1).await);
        let (a, b) = (open(&first, "a").await, open(&second, "b").await);
        assert_ne!(a, b);
    });
}

/// A poll fault never causes a submission.
#[test]
fn poll_faults_are_never_paid_for() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Poll, Fault::Status(502), 5);
        stage.fault(Call::Poll, Fault::Html, 3);
        let id = open(&engine, "a").await;
        served(&engine, id, seconds(60)).await;
        assert_eq!((stage.paid(), stage.provider.submits.lock().unwrap().len()), (1, 1));
    });
}
