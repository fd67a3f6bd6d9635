//! `sim` prints the story of one seed, or runs a range of seeds. `scripts/sim` builds and runs it.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    ops::Range,
    process::ExitCode,
    sync::Mutex,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
};

use simulation::{
    judge::judge,
    seeds::{Activity, FIXED_SEEDS, Failure, check},
    world::Plan,
};

const USAGE: &str = "usage: scripts/sim [--seed N | --seeds FROM..TO]
  --seed N           run seed N and print its whole story
  --seeds FROM..TO   run the seeds from FROM up to, not including, TO
  nothing            run the fixed seeds of every test run";

enum Command {
    Story(u64),
    Range(Range<u64>),
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match parse(&args) {
        Some(Command::Story(seed)) => print_story(seed),
        Some(Command::Range(seeds)) => run_range(seeds),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(args: &[&str]) -> Option<Command> {
    match args {
        [] => Some(Command::Range(0..FIXED_SEEDS)),
        ["--seed", seed] => seed.parse().ok().map(Command::Story),
        ["--seeds", range] => {
            let (from, to) = range.split_once("..")?;
            let seeds = from.parse().ok()?..to.parse().ok()?;
            (!seeds.is_empty()).then_some(Command::Range(seeds))
        }
        _ => None,
    }
}

fn print_story(seed: u64) -> ExitCode {
    let plan = Plan::swarm(seed);
    print(format!("{plan:#?}\n"));
    let traces = plan.run();
    let mut story = String::new();
    for line in &traces.observed.story {
        writeln!(story, "{line}").expect("a String takes everything");
    }
    print(story);
    let verdict = judge(&traces);
    let mut activity = Activity::default();
    activity.add(&verdict);
    if verdict.violations.is_empty() {
        print(format!("seed {seed} holds: {activity}"));
        return ExitCode::SUCCESS;
    }
    print(Failure { seed, violations: verdict.violations }.to_string());
    ExitCode::FAILURE
}

fn print(mut text: String) {
    text.push('\n');
    // The reader may have closed the pipe.
    drop(io::stdout().write_all(text.as_bytes()));
}

/// Distributes the seeds over the machine's cores.
fn run_range(seeds: Range<u64>) -> ExitCode {
    let next = AtomicU64::new(seeds.start);
    let failures = AtomicUsize::new(0);
    let activity = Mutex::new(Activity::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            match check(Plan::swarm(seed)) {
                Ok(verdict) => activity.lock().expect("adding cannot panic").add(&verdict),
                Err(failure) => {
                    failures.fetch_add(1, Ordering::Relaxed);
                    print(failure.to_string());
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner();
    let activity = activity.into_inner().expect("adding cannot panic");
    let (held, Range { start, end }) = (activity.seeds, seeds);
    print(format!("seeds {start}..{end}: {failures} failed, {held} held: {activity}"));
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
