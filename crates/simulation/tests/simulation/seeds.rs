//! Fixed seeds, random seeds, seeds that once failed, and planted bugs that the simulation must find.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    io::{self, Write},
};

use simulation::{
    judge::judge,
    ports::{Bug, StoreFaults},
    seeds::{Activity, FIXED_SEEDS, Failure, check},
    world::Plan,
};

/// The fixed seeds are divided among this many tests, which run in parallel.
const PARTS: u64 = 4;
const RANDOM_SEEDS: usize = 20;

/// `SOLVEGATE_SEEDS=1000` runs more fixed seeds; `scripts/test --long` sets it.
fn fixed_seeds() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the long run asks for more seeds")]
    let Ok(wanted) = std::env::var("SOLVEGATE_SEEDS") else { return FIXED_SEEDS };
    let seeds = wanted.parse().ok().filter(|seeds| *seeds >= FIXED_SEEDS);
    seeds.unwrap_or_else(|| {
        panic!("SOLVEGATE_SEEDS={wanted:?} is not a number of seeds from {FIXED_SEEDS} on")
    })
}

fn hold(seeds: impl IntoIterator<Item = u64>) {
    let mut activity = Activity::default();
    for seed in seeds {
        let verdict = check(Plan::swarm(seed)).unwrap_or_else(|failure| panic!("{failure}"));
        activity.add(&verdict);
    }
    let Activity { paid, served, ordered, crashes, .. } = activity;
    let is_alive = paid > 0 && served > 0 && ordered > 0 && crashes > 0;
    assert!(is_alive, "too little happened: {activity}");
    eprintln!("{} seeds: {activity}", activity.seeds);
}

fn hold_part(part: u64) {
    hold((0..fixed_seeds()).filter(|seed| seed % PARTS == part));
}

#[test]
fn fixed_seeds_hold_1_of_4() {
    hold_part(0);
}

#[test]
fn fixed_seeds_hold_2_of_4() {
    hold_part(1);
}

#[test]
fn fixed_seeds_hold_3_of_4() {
    hold_part(2);
}

#[test]
fn fixed_seeds_hold_4_of_4() {
    hold_part(3);
}

/// `SOLVEGATE_RANDOM_SEED` chooses the random seeds; `scripts/test` sets it to a number of the commit.
fn random_start() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the same commit checks the same seeds")]
    let Ok(chosen) = std::env::var("SOLVEGATE_RANDOM_SEED") else {
        // Every RandomState starts from keys of the operating system.
        return RandomState::new().hash_one(());
    };
    chosen.parse().unwrap_or_else(|_| panic!("SOLVEGATE_RANDOM_SEED={chosen:?} is not a number"))
}

/// Their numbers bypass the test harness, which shows the output of failed tests only.
#[test]
fn random_seeds_hold() {
    let mut rng = fastrand::Rng::with_seed(random_start());
    let seeds: Vec<u64> = (0..RANDOM_SEEDS).map(|_| u64::from(rng.u32(..))).collect();
    let numbers: Vec<String> = seeds.iter().map(ToString::to_string).collect();
    let line = format!(
        "\nsimulation: random seeds {}; repeat one with scripts/sim --seed N\n",
        numbers.join(" ")
    );
    io::stderr().write_all(line.as_bytes()).unwrap();
    hold(seeds);
}

/// Seeds that once failed, each with its cause. They are never removed.
#[test]
fn seeds_that_once_failed_hold() {
    let regressions = include_str!("regressions.txt");
    for line in regressions.lines().filter(|line| !line.starts_with('#')) {
        let seed = line
            .split_whitespace()
            .next()
            .and_then(|seed| seed.parse().ok())
            .expect("a seed, then why");
        if let Err(failure) = check(Plan::swarm(seed)) {
            panic!("{failure}\nit failed before: {line}");
        }
    }
}

/// Admissions among them, which may have started their solve: every fourth answer of the store is lost, and gateways crash.
#[test]
fn nothing_is_paid_twice_when_the_store_often_does_not_answer() {
    for seed in 1_000..1_025 {
        let plan = Plan::swarm(seed);
        let store_faults = StoreFaults { reply_lost: 250, ..plan.store_faults };
        let plan = Plan { store_faults, crashes: true, ..plan };
        if let Err(failure) = check(plan) {
            panic!("{failure}");
        }
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

#[test]
fn a_failing_seed_names_itself_and_how_to_repeat_it() {
    let bugs = (0..FIXED_SEEDS).map(|seed| Plan { bug: Some(Bug::NoIntent), ..Plan::swarm(seed) });
    let failure = bugs.map(check).find_map(Result::err).expect("a planted bug is found");
    let text = failure.to_string();
    assert!(text.contains(&format!("seed {} failed", failure.seed)), "{text}");
    assert!(text.ends_with(&format!("scripts/sim --seed {}", failure.seed)), "{text}");
    assert!(text.contains("I2"), "{text}");
}

/// The fixed seeds of every run show a planted bug.
fn finds(bug: Bug) {
    let shows = |seed: u64| {
        let violations = judge(&Plan { bug: Some(bug), ..Plan::swarm(seed) }.run()).violations;
        (!violations.is_empty()).then_some(Failure { seed, violations })
    };
    let found = (0..FIXED_SEEDS).find_map(shows);
    let failure = found.unwrap_or_else(|| panic!("{bug:?} was not found in {FIXED_SEEDS} seeds"));
    eprintln!("{bug:?}: {failure}");
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
    finds(Bug::DropsFailedCallbacks);
}

#[test]
fn a_poll_fault_that_ends_a_task_is_found() {
    finds(Bug::PollFaultEndsTask);
}

#[test]
fn a_retry_without_its_wait_is_found() {
    finds(Bug::RetriesAtOnce);
}

#[test]
fn a_forgotten_pause_is_found() {
    finds(Bug::ForgetsPauses);
}

#[test]
fn a_gateway_that_keeps_its_declarations_is_found() {
    finds(Bug::KeepsDeclarations);
}

#[test]
fn a_spend_beyond_a_budget_is_found() {
    finds(Bug::IgnoresBudgets);
}

#[test]
fn a_retry_beyond_a_budget_is_found() {
    finds(Bug::RetriesBeyondBudgets);
}

#[test]
fn an_order_beyond_a_budget_is_found() {
    finds(Bug::OrdersBeyondBudgets);
}

#[test]
fn a_key_that_opens_failed_work_too_soon_is_found() {
    finds(Bug::ReopensAtOnce);
}

#[test]
fn a_key_that_pays_again_for_what_may_be_paid_is_found() {
    finds(Bug::ForgetsFailures);
}
