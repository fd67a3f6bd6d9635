//! `bench decisions`: how many decisions several gateways make together on one PostgreSQL, where every commit locks the
//! same row. The ceiling is one connection that commits one row after the other, each on disk.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use domain::{challenge::Kind, ports::Chance as _};
use futures_util::future::try_join_all;
use solvegate::{
    chance::SystemChance,
    clock::SystemClock,
    exit::{Exit, Failure},
};
use stores::Backend;

use crate::{
    challenges::on_page,
    cli::DecisionsArgs,
    fixtures::claims::StoreFiller,
    load::as_f64,
    probes::postgres::PostgresProbe,
    remote_store::RemoteStore,
    report::{Figure, Report},
    requests::ChallengeText,
};

/// The results for one number of gateways, by round.
#[derive(Default)]
struct DecisionFigures {
    decisions: Vec<f64>,
    commits: Vec<f64>,
    of_bare: Vec<f64>,
    conflicts: Vec<f64>,
    shared: Vec<f64>,
}

/// The server publishes its count of rollbacks with a delay.
const STATISTICS_DELAY: Duration = Duration::from_millis(2500);

pub(crate) async fn run(args: &DecisionsArgs) -> Result<Report, Failure> {
    let mut report = Report::begin("decisions", args.rounds);
    let remote = RemoteStore::create(&args.store).await?;
    let measured = measure(&remote.url(), remote.postgres()?, args).await;
    remote.clear().await?;
    let (bare, found) = measured?;
    report.add(Figure::new("bare commits, one after the other".to_owned(), "/s", bare));
    for (gateways, found) in found {
        found.add_to(&mut report, gateways);
    }
    Ok(report.end())
}

/// The rates of bare commits, and the results of one gateway and of all in the same rounds.
async fn measure(
    url: &str,
    probe: &PostgresProbe,
    args: &DecisionsArgs,
) -> Result<(Vec<f64>, Vec<(usize, DecisionFigures)>), Failure> {
    let mut all = Vec::new();
    for _ in 0..args.gateways.max(1) {
        all.push(stores::connect(url).await.map_err(Failure::of(Exit::Unreachable))?);
    }
    let mut rates = Vec::new();
    let mut found = vec![(1, DecisionFigures::default()), (all.len(), DecisionFigures::default())];
    for _ in 0..args.rounds.rounds {
        let length = args.rounds.length();
        let commits = probe.bare_commits(length).await.map_err(Failure::of(Exit::Failed))?;
        let bare = as_f64(commits) / length.as_secs_f64();
        rates.push(bare);
        for (gateways, found) in &mut found {
            found.round(&all[..*gateways], probe, args, bare).await?;
        }
    }
    Ok((rates, found))
}

// === impl DecisionFigures ===

impl DecisionFigures {
    async fn round(
        &mut self,
        gateways: &[Backend],
        probe: &PostgresProbe,
        args: &DecisionsArgs,
        bare: f64,
    ) -> Result<(), Failure> {
        let length = args.rounds.length();
        let before = counted(probe).await?;
        let each = args.callers.div_ceil(gateways.len());
        let made = gateways.iter().map(|gateway| decide(gateway, each, length));
        let made: u64 = try_join_all(made).await?.iter().sum();
        let after = counted(probe).await?;
        let commits = as_f64(after.0 - before.0).max(1.0);
        let conflicts = as_f64(after.1.saturating_sub(before.1));
        self.decisions.push(as_f64(made) / length.as_secs_f64());
        self.commits.push(commits / length.as_secs_f64());
        self.of_bare.push(commits / length.as_secs_f64() / bare);
        self.conflicts.push(conflicts / commits);
        self.shared.push(as_f64(made) / commits);
        Ok(())
    }

    fn add_to(self, report: &mut Report, gateways: usize) {
        let mut add = |what: &str, unit, rounds| {
            let who = if gateways == 1 { "gateway" } else { "gateways" };
            report.add(Figure::new(format!("{gateways} {who}: {what}"), unit, rounds));
        };
        add("decisions", "/s", self.decisions);
        add("commits", "/s", self.commits);
        add("commits / bare commits", "x", self.of_bare);
        add("decisions in a commit", "", self.shared);
        add("conflicts for each commit", "", self.conflicts);
    }
}

async fn counted(probe: &PostgresProbe) -> Result<(u64, u64), Failure> {
    pause(STATISTICS_DELAY).await;
    let usage = probe.usage().await.map_err(Failure::of(Exit::Failed))?;
    let rollbacks = probe.rollbacks().await.map_err(Failure::of(Exit::Failed))?;
    Ok((usage.calls, rollbacks))
}

/// Callers that open and withdraw claims in a loop. Returns the number of decisions.
async fn decide(gateway: &Backend, callers: usize, length: Duration) -> Result<u64, Failure> {
    let chance = SystemChance::start().map_err(Failure::of(Exit::Failed))?;
    let filler = StoreFiller::start(&*gateway.store, &SystemClock::start(), &chance).await?;
    let (made, end) = (AtomicU64::new(0), now() + length);
    let callers = (0..callers).map(async |_| {
        while now() < end {
            let sitekey = format!("0x4AAA{:06}", chance.draw() % 10_000);
            let challenge = on_page(Kind::Turnstile, sitekey, &ChallengeText::new().pageurl)?;
            let claim = filler.open(challenge).await?;
            filler.withdraw(claim).await?;
            made.fetch_add(2, Ordering::Relaxed);
        }
        Ok::<_, Failure>(())
    });
    try_join_all(callers).await?;
    Ok(made.into_inner())
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
