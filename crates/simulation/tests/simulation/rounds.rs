//! Serverless processes: each round may run in another process, and only the store has state.

use std::time::Duration;

use domain::{
    claim::ClaimState,
    declarations::Declarations,
    ledger::Event,
    money::Money,
    ports::Scope,
    site::Site,
    solve::{AmbiguousPolicy, Stage as SolveStage},
    time::Timestamp,
};
use engine::{Outcome, RoundReport, Slots};
use simulator::{BehaviourConfig, Call, Fault};

use simulation::stage::{Stage, claim_request, open, open_with, seconds, served, story};

fn soon(stage: &Stage) -> Timestamp {
    stage.clock.now().plus(seconds(20))
}

#[test]
fn one_process_submits_others_poll_and_it_is_paid_once() {
    story(async |stage| {
        let began = stage.clock.now();
        let mut first = stage.rounds(1);
        let id = open(first.engine(), "a").await;
        let tally = first.submit(id, soon(&stage)).await.unwrap();
        assert_eq!(tally, RoundReport { leased: 1, submitted: 1, ..RoundReport::default() });
        drop(first);
        let tally = stage.rounds(2).run_all(soon(&stage)).await.unwrap();
        assert_eq!(
            tally,
            RoundReport { leased: 1, polled: 1, ..RoundReport::default() },
            "not ready yet"
        );
        assert!(stage.clock.now().since(began) < seconds(1), "no round waits for a task");
        stage.pass(seconds(10)).await;
        let tally = stage.rounds(3).run_all(soon(&stage)).await.unwrap();
        assert_eq!(tally, RoundReport { leased: 1, polled: 1, over: 1, ..RoundReport::default() });
        served(stage.rounds(4).engine(), id, Duration::ZERO).await;
        assert_eq!(stage.paid(), 1);
    });
}

#[test]
fn a_round_leaves_nothing_leased() {
    story(async |stage| {
        let mut first = stage.rounds(1);
        let id = open(first.engine(), "a").await;
        first.submit(id, soon(&stage)).await.unwrap();
        let claim = first.engine().find_claim(&Scope::All, id).await.unwrap();
        let solve = stage.backend.store.find_solve(claim.solve.unwrap()).await.unwrap().unwrap();
        assert_eq!((solve.stage, solve.holder), (SolveStage::Submitted, None));
        let began = stage.clock.now();
        served(&stage.gateway(2).await, id, seconds(60)).await;
        assert!(
            stage.clock.now().since(began) < seconds(12),
            "no process waits for a lease to end"
        );
        let recovered = |event: &Event| matches!(event, Event::Recovered { .. });
        assert!(!stage.entries().await.iter().any(|entry| recovered(&entry.event)));
    });
}

/// Workers fetch frequently and repeat their claims.
#[test]
fn repeated_fetches_of_a_claim_cause_no_polls() {
    story(async |stage| {
        let mut rounds = stage.rounds(1);
        let id = open(rounds.engine(), "a").await;
        for _ in 0..10 {
            rounds.submit(id, soon(&stage)).await.unwrap();
            assert_eq!(open(rounds.engine(), "a").await, id);
        }
        assert_eq!(stage.provider.submits.lock().unwrap().len(), 1);
        assert_eq!(stage.provider.polls.lock().unwrap().len(), 0);
    });
}

/// The process dies before the reply arrives. The site's policy decides whether the attempt is written off or repeated.
fn killed(policy: AmbiguousPolicy) -> (usize, ClaimState, usize) {
    let mut seen = None;
    story(async |mut stage| {
        let site = Site {
            ambiguous: policy,
            ..Site::new("shop.example.com".parse().unwrap(), "simulated shop")
        };
        stage.config.declarations =
            Declarations { sites: vec![site], ..Declarations::default() }.into();
        stage.fault(Call::Submit, Fault::Hang, 1);
        let mut first = stage.rounds(1);
        let id = open(first.engine(), "a").await;
        let until = soon(&stage);
        tokio::time::timeout(seconds(1), first.submit(id, until)).await.unwrap_err();
        drop(first);
        let mut second = stage.rounds(2);
        for _ in 0..3 {
            assert_eq!(second.submit(id, until).await.unwrap(), RoundReport::default());
            let tally = second.run_all(soon(&stage)).await.unwrap();
            assert_eq!(tally, RoundReport::default(), "it may still live");
        }
        stage.pass(seconds(16)).await;
        // One takes it over, the others wait for the end of the grace period, decide, submit and poll.
        for _ in 0..5 {
            second.run_all(soon(&stage)).await.unwrap();
            stage.pass(seconds(10)).await;
        }
        let authorised = |event: &Event| matches!(event, Event::Authorised { .. });
        let entries = stage.entries().await;
        let authorised = entries.iter().filter(|entry| authorised(&entry.event)).count();
        let claim = second.engine().find_claim(&Scope::All, id).await.unwrap();
        seen = Some((stage.provider.submits.lock().unwrap().len(), claim.state, authorised));
    });
    seen.unwrap()
}

#[test]
fn a_process_that_dies_between_intent_and_reply_is_not_repeated_blindly() {
    assert_eq!(killed(AmbiguousPolicy::Never), (1, ClaimState::Failed, 0));
    assert_eq!(killed(AmbiguousPolicy::ResubmitOnce), (2, ClaimState::Served, 1));
}

#[test]
fn a_round_submits_all_that_waits_at_the_usual_pace() {
    story(async |stage| {
        let mut rounds = stage.rounds(1);
        for n in 0..50 {
            open(rounds.engine(), &format!("k{n}")).await;
        }
        let tally = rounds.run_all(stage.clock.now()).await.unwrap();
        assert_eq!(tally, RoundReport::default(), "there is no time to begin anything");
        let tally = rounds.run_all(soon(&stage)).await.unwrap();
        assert_eq!((tally.leased, tally.submitted, stage.paid()), (50, 50, 50));
        let submits = stage.provider.submits.lock().unwrap().clone();
        let crowded = submits.windows(21).any(|some| some[20].since(some[0]) < seconds(1));
        assert!(!crowded, "twenty a second");
    });
}

#[test]
fn a_solve_nobody_waits_for_is_not_paid_for() {
    story(async |stage| {
        let mut rounds = stage.rounds(1);
        let mut short = claim_request("a");
        short.deadline = Some(seconds(30));
        let id = open_with(rounds.engine(), short).await;
        stage.pass(seconds(31)).await;
        assert_eq!(rounds.submit(id, soon(&stage)).await.unwrap(), RoundReport::default());
        let tally = rounds.run_all(soon(&stage)).await.unwrap();
        assert_eq!(tally, RoundReport { lapsed: 1, ..RoundReport::default() });
        let outcome = rounds.engine().fetch(&Scope::All, id, Duration::ZERO).await.unwrap();
        assert!(matches!(outcome, Outcome::Lapsed(_)), "{outcome:?}");
        assert_eq!(stage.provider.submits.lock().unwrap().len(), 0);
    });
}

/// The circuit breaker belongs to the process, not to the round.
#[test]
fn an_empty_account_is_not_probed_by_every_round() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(7);
        behaviour.balance = Money::ZERO;
        let stage = Stage::with(behaviour);
        let mut rounds = stage.rounds(1);
        for n in 0..10 {
            let id = open(rounds.engine(), &format!("k{n}")).await;
            rounds.submit(id, soon(&stage)).await.unwrap();
        }
        let submits = stage.provider.submits.lock().unwrap().len();
        assert!(submits <= 2, "{submits}");
    });
}

/// A process with no task of its own learns from the provider how many slots others use.
#[test]
fn slots_used_by_other_processes_are_known() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(7).solving_in(seconds(8));
        behaviour.threads = Some(2);
        behaviour.captchaai = true;
        let mut stage = Stage::with(behaviour);
        stage.config.slots = Slots::Auto;
        for n in 0..5 {
            let mut rounds = stage.rounds(n);
            let id = open(rounds.engine(), &format!("k{n}")).await;
            rounds.submit(id, soon(&stage)).await.unwrap();
        }
        assert_eq!(stage.provider.submits.lock().unwrap().len(), 2);
        stage.pass(seconds(10)).await;
        let tally = stage.rounds(9).run_all(soon(&stage)).await.unwrap();
        assert_eq!((tally.leased, tally.polled, tally.over), (5, 2, 2));
        assert_eq!(stage.paid(), 4, "the two slots are used again");
    });
}
