//! `bench decisions`: how many decisions several gateways make together on one Redis or PostgreSQL, where all commits follow
//! one another. Every gateway has the same number of callers, and all work for one worker, so each commit adds to the same
//! sums and to the end of the same ledger. The gateways are in one process.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use domain::{challenge::Kind, ports::Chance as _};
use futures_util::future::{try_join, try_join_all};
use solvegate::{
    chance::SystemChance,
    clock::SystemClock,
    exit::{Exit, Failure},
};
use stores::{Backend, Counters};

use crate::{
    challenges::on_page,
    cli::DecisionsArgs,
    fixtures::claims::StoreFiller,
    load::as_f64,
    remote_store::RemoteStore,
    report::{Figure, Report},
    requests::ChallengeText,
};

/// What the callers of one gateway do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Open claims and withdraw them: two decisions each.
    Withdrawn,
    /// Open claims and bring them to their answers: five decisions each.
    Served,
}

/// What one gateway did in a round.
struct Made {
    claims: u64,
    /// How long its lease took to renew, in milliseconds.
    renewals: Vec<f64>,
}

/// The results for one number of gateways, by round.
#[derive(Default)]
struct DecisionFigures {
    gateways: usize,
    decisions: Vec<f64>,
    of_first: Vec<f64>,
    smallest_share: Vec<f64>,
    commits: Vec<f64>,
    in_a_commit: Vec<f64>,
    conflicts: Vec<f64>,
    renumbered: Vec<f64>,
    renewals: Vec<f64>,
    solves: Vec<f64>,
    commits_of_solve: Vec<f64>,
    conflicts_of_solve: Vec<f64>,
}

/// How often each gateway renews its lease.
const RENEWAL: Duration = Duration::from_millis(100);

pub(crate) async fn run(args: &DecisionsArgs) -> Result<Report, Failure> {
    let mut report = Report::begin("decisions", args.rounds);
    let remote = RemoteStore::create(&args.store).await?;
    let measured = measure(&remote, args).await;
    remote.clear().await?;
    let (bare, found) = measured?;
    if let Some(bare) = bare {
        report.add(Figure::new("bare commits, one after the other".to_owned(), "/s", bare));
    }
    for found in found {
        found.add_to(&mut report);
    }
    Ok(report.end())
}

/// The rates of bare commits on PostgreSQL, and the results of each number of gateways in the same rounds.
async fn measure(
    remote: &RemoteStore,
    args: &DecisionsArgs,
) -> Result<(Option<Vec<f64>>, Vec<DecisionFigures>), Failure> {
    let mut all = Vec::new();
    for _ in 0..args.gateways.iter().copied().max().unwrap_or(1) {
        let gateway = stores::connect(&remote.url()).await;
        all.push(gateway.map_err(Failure::of(Exit::Unreachable))?);
    }
    let new = |gateways: &usize| DecisionFigures { gateways: *gateways, ..<_>::default() };
    let mut found: Vec<_> = args.gateways.iter().map(new).collect();
    let (probe, mut bare) = (remote.postgres().ok(), Vec::new());
    for _ in 0..args.rounds.rounds {
        let length = args.rounds.length();
        if let Some(probe) = probe {
            let commits = probe.bare_commits(length).await.map_err(Failure::of(Exit::Failed))?;
            bare.push(as_f64(commits) / length.as_secs_f64());
        }
        let mut first = None;
        for found in &mut found {
            let rate = found.round(&all[..found.gateways], args).await?;
            found.of_first.push(rate / *first.get_or_insert(rate));
        }
    }
    Ok((probe.map(|_| bare), found))
}

// === impl DecisionFigures ===

impl DecisionFigures {
    /// Measures one round. Returns the decisions in a second.
    async fn round(&mut self, gateways: &[Backend], args: &DecisionsArgs) -> Result<f64, Failure> {
        let seconds = args.rounds.length().as_secs_f64();
        let (made, counted) = work(gateways, args, Work::Withdrawn).await?;
        let all: u64 = made.iter().map(|made| made.claims).sum();
        let smallest = made.iter().map(|made| made.claims).min().unwrap_or(0);
        let rate = 2.0 * as_f64(all) / seconds;
        let commits = as_f64(counted.commits).max(1.0);
        self.decisions.push(rate);
        self.smallest_share.push(as_f64(smallest) / as_f64(all).max(1.0));
        self.commits.push(commits / seconds);
        self.in_a_commit.push(as_f64(counted.decisions) / commits);
        self.conflicts.push(as_f64(counted.conflicts) / commits);
        self.renumbered.push(as_f64(counted.renumbered) / commits);
        self.renewals.push(percentile_99(made.into_iter().flat_map(|made| made.renewals)));
        let (served, counted) = work(gateways, args, Work::Served).await?;
        let solves = as_f64(served.iter().map(|made| made.claims).sum()).max(1.0);
        self.solves.push(solves / seconds);
        self.commits_of_solve.push(as_f64(counted.commits) / solves);
        self.conflicts_of_solve.push(as_f64(counted.conflicts) / solves);
        Ok(rate)
    }

    fn add_to(self, report: &mut Report) {
        let who = if self.gateways == 1 { "gateway" } else { "gateways" };
        let mut add = |what: &str, unit, rounds| {
            report.add(Figure::new(format!("{} {who}: {what}", self.gateways), unit, rounds));
        };
        add("decisions", "/s", self.decisions);
        add("decisions / those of the first row", "x", self.of_first);
        add("smallest share of a gateway", "", self.smallest_share);
        add("commits", "/s", self.commits);
        add("decisions in a commit", "", self.in_a_commit);
        add("conflicts for each commit", "", self.conflicts);
        add("sent again for the ledger, for each commit", "", self.renumbered);
        add("99th percentile of lease renewals", "ms", self.renewals);
        add("whole solves", "/s", self.solves);
        add("commits for each solve", "", self.commits_of_solve);
        add("conflicts for each solve", "", self.conflicts_of_solve);
    }
}

/// What each gateway made, and what all of them counted meanwhile.
async fn work(
    gateways: &[Backend],
    args: &DecisionsArgs,
    work: Work,
) -> Result<(Vec<Made>, Counters), Failure> {
    let before: Vec<Counters> = gateways.iter().map(|one| one.adapter.counters()).collect();
    let length = args.rounds.length();
    let made = gateways.iter().map(|gateway| work_at(gateway, args.callers, length, work));
    let made = try_join_all(made).await?;
    let mut sum = Counters::default();
    for (gateway, before) in gateways.iter().zip(before) {
        let now = gateway.adapter.counters();
        sum.decisions += now.decisions - before.decisions;
        sum.commits += now.commits - before.commits;
        sum.conflicts += now.conflicts - before.conflicts;
        sum.renumbered += now.renumbered - before.renumbered;
    }
    Ok((made, sum))
}

/// Callers that work in a loop, while the gateway renews its lease.
async fn work_at(
    gateway: &Backend,
    callers: usize,
    length: Duration,
    work: Work,
) -> Result<Made, Failure> {
    let chance = SystemChance::start().map_err(Failure::of(Exit::Failed))?;
    let filler = StoreFiller::start(&*gateway.store, &SystemClock::start(), &chance).await?;
    let (made, end) = (AtomicU64::new(0), now() + length);
    let callers = (0..callers).map(async |_| {
        while now() < end {
            let sitekey = format!("0x4AAA{:06}", chance.draw() % 10_000);
            let challenge = on_page(Kind::Turnstile, sitekey, &ChallengeText::new().pageurl)?;
            let claim = filler.open(challenge).await?;
            match work {
                Work::Withdrawn => filler.withdraw(claim).await?,
                Work::Served => filler.serve(claim).await?,
            }
            made.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<_, Failure>(())
    });
    let (_, renewals) = try_join(try_join_all(callers), renew_until(&filler, end)).await?;
    Ok(Made { claims: made.into_inner(), renewals })
}

async fn renew_until(filler: &StoreFiller<'_>, end: Instant) -> Result<Vec<f64>, Failure> {
    let mut took = Vec::new();
    while now() < end {
        let start = now();
        filler.renew().await?;
        took.push(start.elapsed().as_secs_f64() * 1000.0);
        pause(RENEWAL).await;
    }
    Ok(took)
}

fn percentile_99(all: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    let rank = (all.len() * 99).div_ceil(100).max(1);
    all.get(rank - 1).copied().unwrap_or(0.0)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
