//! `bench growth`: whether a decision takes longer when much is stored. Fills a store with ended claims and solves in
//! flight, and times new claims before and after, one at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{
    challenge::{Challenge, Kind},
    ports::{Chance as _, Store, SweepRequest},
};
use solvegate::{
    chance::SystemChance,
    clock::SystemClock,
    exit::{Exit, Failure},
};
use stores::StoreAdapter;

use crate::{
    challenges::on_page,
    cli::GrowthArgs,
    fixtures::claims::{StoreFiller, concurrently},
    load::as_f64,
    remote_store::RemoteStore,
    report::{Bar, Figure, Report},
    requests::ChallengeText,
};

/// The results, by round.
#[derive(Default)]
struct GrowthFigures {
    ratios: Vec<f64>,
    small_us: Vec<f64>,
    large_us: Vec<f64>,
    sweep_ms: Vec<f64>,
    bytes_per_claim: Vec<f64>,
}

/// The number of timed claims at each size.
const TIMED: usize = 2_000;
/// The number of stored claims at the first measurement.
const FEW: usize = 1_000;
/// Claims opened before they are submitted.
const BATCH: usize = 10_000;
/// Different challenges.
const SITEKEYS: u64 = 10_000;

pub(crate) async fn run(args: &GrowthArgs) -> Result<Report, Failure> {
    let mut report = Report::begin("growth", args.rounds).without_load();
    let remote = match &args.store {
        Some(url) => Some(RemoteStore::create(url).await?),
        None => None,
    };
    let mut found = GrowthFigures::default();
    for _ in 0..args.rounds.rounds {
        let round = found.round(args, remote.as_ref()).await;
        if let Some(remote) = &remote {
            remote.clear().await?;
        }
        round?;
    }
    found.add_to(&mut report, args);
    Ok(report.end())
}

// === impl GrowthFigures ===

impl GrowthFigures {
    async fn round(
        &mut self,
        args: &GrowthArgs,
        remote: Option<&RemoteStore>,
    ) -> Result<(), Failure> {
        let store: Arc<dyn Store> = match remote {
            Some(remote) => {
                let backend = stores::connect(&remote.url()).await;
                backend.map_err(Failure::of(Exit::Unreachable))?.store
            }
            None => Arc::new(StoreAdapter::in_memory()),
        };
        let chance = SystemChance::start().map_err(Failure::of(Exit::Failed))?;
        let filler = StoreFiller::start(&*store, &SystemClock::start(), &chance).await?;
        fill(&filler, &chance, FEW, 0).await?;
        let small = time_claims(&filler, &chance).await?.as_secs_f64();
        let before = memory(remote).await?;
        fill(&filler, &chance, args.claims.saturating_sub(args.inflight), args.inflight).await?;
        if let (Some(before), Some(after)) = (before, memory(remote).await?) {
            let claims = as_f64(args.claims.max(1) as u64);
            self.bytes_per_claim.push(as_f64(after.saturating_sub(before)) / claims);
        }
        let large = time_claims(&filler, &chance).await?.as_secs_f64();
        self.ratios.push(large / small);
        self.small_us.push(small * 1e6);
        self.large_us.push(large * 1e6);
        self.sweep_ms.push(longest_sweep(&*store, &filler).await?.as_secs_f64() * 1e3);
        Ok(())
    }

    fn add_to(self, report: &mut Report, args: &GrowthArgs) {
        let (bar, stretch) = if args.store.is_some() { (1.8, 1.6) } else { (1.4, 1.15) };
        let stored = format!("{} claims, {} in flight", args.claims, args.inflight);
        let ratio = Figure::new(format!("a new claim: {stored} / {FEW} claims"), "x", self.ratios);
        report.add(ratio.held_to(Bar::AtMost { bar, stretch }));
        report.add(Figure::new(format!("a new claim, {FEW} claims"), "us", self.small_us));
        report.add(Figure::new(format!("a new claim, {stored}"), "us", self.large_us));
        let sweep = Figure::new("longest of 20 sweeps".to_owned(), "ms", self.sweep_ms);
        report.add(sweep.held_to(Bar::AtMost { bar: 5.0, stretch: 1.0 }));
        if args.store.is_some() {
            let what = "the server's memory (PostgreSQL: disk) per claim".to_owned();
            report.add(Figure::new(what, "B", self.bytes_per_claim));
        }
    }
}

async fn memory(remote: Option<&RemoteStore>) -> Result<Option<u64>, Failure> {
    match remote {
        Some(remote) => Ok(Some(remote.usage().await?.bytes)),
        None => Ok(None),
    }
}

/// Adds ended claims, and claims whose solves are in flight.
async fn fill(
    filler: &StoreFiller<'_>,
    chance: &SystemChance,
    over: usize,
    inflight: usize,
) -> Result<(), Failure> {
    let over = (0..over).map(async |_| {
        let claim = filler.open(one_of_many(chance)?).await?;
        filler.withdraw(claim).await
    });
    concurrently(over).await?;
    for from in (0..inflight).step_by(BATCH) {
        let batch = 0..BATCH.min(inflight - from);
        concurrently(batch.map(async |_| filler.open(one_of_many(chance)?).await.map(drop)))
            .await?;
        let leases = filler.intend().await?;
        concurrently(leases.iter().map(|lease| filler.accept(lease))).await?;
    }
    Ok(())
}

fn one_of_many(chance: &SystemChance) -> Result<Challenge, Failure> {
    let sitekey = format!("0x4AAA{:06}", chance.draw() % SITEKEYS);
    on_page(Kind::Turnstile, sitekey, &ChallengeText::new().pageurl)
}

/// The median time of new claims, one after the other. They are withdrawn outside the measurement.
async fn time_claims(filler: &StoreFiller<'_>, chance: &SystemChance) -> Result<Duration, Failure> {
    let mut took = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        let challenge = one_of_many(chance)?;
        let start = now();
        let claim = filler.open(challenge).await?;
        took.push(start.elapsed());
        filler.withdraw(claim).await?;
    }
    took.sort_unstable();
    Ok(took[TIMED / 2])
}

async fn longest_sweep(store: &dyn Store, filler: &StoreFiller<'_>) -> Result<Duration, Failure> {
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let start = now();
        let ask = SweepRequest::plain(100);
        store.sweep(ask, filler.now).await.map_err(Failure::of(Exit::Failed))?;
        longest = longest.max(start.elapsed());
    }
    Ok(longest)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}
