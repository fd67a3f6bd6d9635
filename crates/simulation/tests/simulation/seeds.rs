//! A thousand seeds; seeds that once failed; and the proof that the simulation is not blind.

use simulation::{
    judge::{all_entries, judge},
    ports::Bug,
    world::Plan,
};

/// Runs a span of seeds.
fn run(seeds: std::ops::Range<u64>) {
    let (mut paid, mut served, mut entries, mut crashes, mut ordered) = (0, 0, 0, 0, 0);
    for seed in seeds.clone() {
        let verdict = judge(&Plan::swarm(seed).run());
        assert!(verdict.violations.is_empty(), "DST_SEED={seed}: {:#?}", verdict.violations);
        paid += verdict.paid;
        served += verdict.served;
        entries += verdict.entries;
        crashes += verdict.crashes;
        ordered += verdict.ordered;
    }
    assert!(
        paid > 0 && served > 0 && crashes > 0 && ordered > 0,
        "the worlds of {seeds:?} were alive"
    );
    eprintln!(
        "seeds {seeds:?}: {paid} tasks paid, {served} tokens delivered, {ordered} ordered by pools, {crashes} crashes, {entries} entries"
    );
}

#[test]
fn seeds_0_to_250_hold() {
    run(0..250);
}

#[test]
fn seeds_250_to_500_hold() {
    run(250..500);
}

#[test]
fn seeds_500_to_750_hold() {
    run(500..750);
}

#[test]
fn seeds_750_to_1000_hold() {
    run(750..1000);
}

/// Seeds that once failed, each with what was wrong, run first for ever.
#[test]
fn seeds_that_once_failed_hold() {
    let regressions = include_str!("regressions.txt");
    for line in regressions.lines().filter(|line| !line.starts_with('#')) {
        let seed = line
            .split_whitespace()
            .next()
            .and_then(|seed| seed.parse().ok())
            .expect("a seed, then why");
        let verdict = judge(&Plan::swarm(seed).run());
        assert!(verdict.violations.is_empty(), "{line}: {:#?}", verdict.violations);
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..20 {
        let [first, second] = [(); 2].map(|()| judge(&Plan::swarm(seed).run()).history);
        assert_eq!(first, second, "seed {seed}");
    }
    assert_ne!(judge(&Plan::swarm(1).run()).history, judge(&Plan::swarm(2).run()).history);
}

/// `DST_SEED=n cargo test -p simulator --test simulation seed_of_the_environment -- --nocapture` tells one seed's story.
#[test]
fn the_seed_of_the_environment_holds() {
    #[expect(clippy::disallowed_methods, reason = "a person asks for one seed")]
    let Some(seed) = std::env::var("DST_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        return;
    };
    let plan = Plan::swarm(seed);
    let traces = plan.run();
    for entry in all_entries(&traces) {
        eprintln!("{} {:?} {:?} {:?}", entry.at, entry.claim, entry.solve, entry.event);
    }
    let verdict = judge(&traces);
    assert!(verdict.violations.is_empty(), "{plan:?}: {:#?}", verdict.violations);
}

/// Finds the first seed that shows a planted bug.
fn finds(bug: Bug) {
    let shows = |seed: &u64| {
        !judge(&Plan { bug: Some(bug), ..Plan::swarm(*seed) }.run()).violations.is_empty()
    };
    let found = (0..1000).find(shows);
    assert!(found.is_some(), "{bug:?} was not found in a thousand seeds");
    eprintln!("{bug:?} shows at seed {}", found.unwrap_or_default());
}

#[test]
fn bytes_without_an_intent_are_found() {
    finds(Bug::NoIntent);
}

#[test]
fn a_lease_end_that_spends_is_found() {
    finds(Bug::LeaseEndAuthorises);
}

#[test]
fn a_forgotten_task_is_found() {
    finds(Bug::ForgetsTask);
}

#[test]
fn a_lost_reply_taken_for_not_sent_is_found() {
    finds(Bug::LostMeansNotSent);
}

#[test]
fn ignored_keys_are_found() {
    finds(Bug::IgnoresKeys);
}

#[test]
fn a_renewed_token_is_found() {
    finds(Bug::RenewsTokens);
}

#[test]
fn a_callback_that_is_tried_only_once_is_found() {
    finds(Bug::TellsOnce);
}

#[test]
fn a_poll_fault_that_ends_a_task_is_found() {
    finds(Bug::PollFaultEndsTask);
}

#[test]
fn a_retry_without_its_wait_is_found() {
    finds(Bug::RetriesAtOnce);
}
