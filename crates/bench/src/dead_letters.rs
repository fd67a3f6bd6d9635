//! `bench dead-letters`: many dead letters, on the memory store and the embedded one. Lists them, revives all of them
//! through the engine beside as many new claims on the same store, and purges them. Nothing is submitted.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use domain::{
    actor::Actor,
    claim::Allowance,
    id::{HolderId, WorkerName},
    ledger::Event,
    ports::{Chance, Clock, Cursor, DeadLetterFilter, NoWebhooks, Notifier, Records, Scope, Store},
    time::Timestamp,
};
use engine::{BulkRequest, DeadLetterSelection, Engine, EngineConfig, Ports, Revived, Slots};
use simulator::{Account, BehaviourConfig, Latency, SimProvider};
use solvegate::{
    chance::SystemChance,
    clock::SystemClock,
    exit::{Exit, Failure},
};
use stores::{LocalNotifier, StoreAdapter};
use tokio::time::Instant;

use crate::{
    challenges::{challenge, declared},
    cli::RunOptions,
    durable::Directory,
    fixtures::dead_letters::{
        BATCH, DeadLetterBatch, DeadLetterFiller, HOSTS, RARE, WORKERS, admit, new_claim,
    },
    load::as_f64,
    report::{Bar, Figure, Report},
    slot_usage::most_within,
};

#[derive(Clone, Debug, Args)]
pub(crate) struct DeadLettersArgs {
    #[command(flatten)]
    pub(crate) rounds: RunOptions,
    /// Number of dead letters
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=20_000))]
    pub(crate) count: u32,
    /// Dead letters per second, for the tenth of them that is revived at a rate
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rate: u32,
    /// Directory for the embedded store, removed afterwards: put it on the disk you care about [default: current
    /// directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
}

/// A store full of dead letters, and an engine that submits nothing.
struct FilledStore {
    store: Arc<dyn Store>,
    chance: Arc<dyn Chance>,
    engine: Engine,
    /// One for each round.
    batches: Vec<DeadLetterBatch>,
    /// Revived at a rate.
    paced: DeadLetterBatch,
}

/// Measurements on one store, by round: milliseconds, per dead letter for writes.
#[derive(Debug, Default)]
struct DeadLetterFigures {
    newest: Vec<f64>,
    rare: Vec<f64>,
    host: Vec<f64>,
    revive: Vec<f64>,
    admit: Vec<f64>,
    purge: Vec<f64>,
    counts: Counts,
    kept: RateResults,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    dead_letters: usize,
    distinct: usize,
    rare_found: usize,
    /// Dead letters that were revived, in any way.
    back: usize,
    opened: usize,
    under_way: usize,
    purged: usize,
}

#[derive(Debug, Default)]
struct RateResults {
    per_second: f64,
    most_in_a_second: usize,
}

/// The age of the oldest dead letter.
const AGE: Duration = Duration::from_secs(12 * 3600);
const PAGE: usize = 50;
const DEADLINE: Duration = Duration::from_secs(3600);
/// So high that the engine does not sleep between two dead letters.
const UNPACED: u32 = u32::MAX;

pub(crate) async fn run(args: DeadLettersArgs) -> Result<Report, Failure> {
    let mut report = Report::begin("dead-letters", args.rounds).without_load();
    let memory = Arc::new(StoreAdapter::in_memory());
    measure(&mut report, "memory", &args, (memory.clone(), memory)).await?;
    let directory = Directory::make(args.data.clone())?;
    let opened =
        StoreAdapter::embedded(directory.path()).map_err(Failure::of(Exit::Unreachable))?;
    let embedded = Arc::new(opened);
    measure(&mut report, "embedded", &args, (embedded.clone(), embedded)).await?;
    let floors: Result<Vec<f64>, Failure> =
        (0..args.rounds.rounds).map(|_| directory.floor()).collect();
    report.add(Figure::new("the disk alone: 4 KiB and an fdatasync", "ms", floors?));
    report.note(
        "one call after the other, as `dead-letters` makes them; revive: through the engine, one decision each, and \
         nothing is submitted; admit: as many new claims, straight into the same store, in the same round",
    );
    Ok(report.end())
}

async fn measure(
    report: &mut Report,
    name: &str,
    args: &DeadLettersArgs,
    store: (Arc<dyn Store>, Arc<dyn Records>),
) -> Result<(), Failure> {
    let filled = Box::pin(FilledStore::fill(args, store)).await?;
    let mut measured = DeadLetterFigures::default();
    filled.read(&mut measured, args.rounds.rounds).await?;
    filled.revive_all(&mut measured, args.rate).await?;
    filled.purge_all(&mut measured).await?;
    filled.engine.drain().await;
    measured.add_to(report, name, args.rate);
    Ok(())
}

// === impl FilledStore ===

impl FilledStore {
    /// Keeps a tenth for the rate; the rest is for the rounds.
    async fn fill(
        args: &DeadLettersArgs,
        (store, records): (Arc<dyn Store>, Arc<dyn Records>),
    ) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let chance: Arc<dyn Chance> =
            Arc::new(SystemChance::start().map_err(Failure::of(Exit::Failed))?);
        let (count, rounds) = (args.count as usize, args.rounds.rounds as usize);
        let batches_made = count / BATCH + 2 * (rounds + 1);
        let mut filler = DeadLetterFiller {
            store: &*store,
            chance: &*chance,
            holder: HolderId::draw(&*chance),
            now: clock.now().minus(AGE),
            gap: AGE / u32::try_from(batches_made).unwrap_or(u32::MAX),
            made: 0,
        };
        let paced = filler.fill(count / 10).await?;
        let mut batches = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let left = count - filler.made;
            batches.push(filler.fill(left / (rounds - round)).await?);
        }
        let engine = start(&store, records, clock, &chance).await?;
        Ok(Self { store, chance, engine, batches, paced })
    }

    async fn read(&self, measured: &mut DeadLetterFigures, rounds: u32) -> Result<(), Failure> {
        let open = || DeadLetterFilter::open(Scope::All, PAGE);
        let rare = DeadLetterFilter { code: Some(RARE.into()), ..open() };
        for _ in 0..rounds {
            let host = DeadLetterFilter {
                host: Some(HOSTS[1].to_owned()),
                since: Some(self.now().minus(AGE / 4)),
                ..open()
            };
            measured.newest.push(self.timed_page(open()).await?.0);
            measured.host.push(self.timed_page(host).await?.0);
            let (took, found) = self.timed_page(rare.clone()).await?;
            measured.rare.push(took);
            measured.counts.rare_found = found;
        }
        Ok(())
    }

    /// Milliseconds for a page, and the number of dead letters on it.
    async fn timed_page(&self, filter: DeadLetterFilter) -> Result<(f64, usize), Failure> {
        let began = Instant::now();
        let page = self.engine.records().dead_letters(filter).await;
        let found = page.map_err(Failure::of(Exit::Failed))?.items.len();
        Ok((began.elapsed().as_secs_f64() * 1e3, found))
    }

    /// Revives all dead letters: batch by batch beside as many new claims, then the rest at a rate.
    async fn revive_all(&self, measured: &mut DeadLetterFigures, rate: u32) -> Result<(), Failure> {
        for batch in &self.batches {
            measured
                .admit
                .push(self.admit(batch.dead_letters).await? / as_f64(batch.dead_letters as u64));
            let began = Instant::now();
            self.revive(batch, UNPACED, &mut measured.counts).await?;
            measured.revive.push(each(began, batch));
        }
        let from = self.now();
        let began = Instant::now();
        self.revive(&self.paced, rate, &mut measured.counts).await?;
        measured.kept.per_second = 1e3 / each(began, &self.paced);
        measured.kept.most_in_a_second = self.most_revived_in_a_second(from).await?;
        for batch in self.batches.iter().chain([&self.paced]) {
            measured.counts.dead_letters += batch.dead_letters;
            measured.counts.distinct += batch.distinct;
        }
        let active = self.engine.records().active(Scope::All, usize::MAX).await;
        measured.counts.under_way = active.map_err(Failure::of(Exit::Failed))?.len();
        Ok(())
    }

    async fn revive(
        &self,
        batch: &DeadLetterBatch,
        rate: u32,
        counts: &mut Counts,
    ) -> Result<(), Failure> {
        let mut bulk = bulk(batch, rate)?;
        loop {
            let done = self.engine.revive(&bulk).await.map_err(Failure::of(Exit::Failed))?;
            let count = |is: fn(&Revived) -> bool| {
                done.items.iter().filter(|(_, revived)| is(revived)).count()
            };
            let opened = count(|revived| matches!(revived, Revived::Opened(_)));
            let met = count(|revived| {
                matches!(revived, Revived::Joined(_) | Revived::Stocked(_) | Revived::Replayed(_))
            });
            counts.opened += opened;
            counts.back += opened + met;
            let Some(next) = done.next else { return Ok(()) };
            continue_from(&mut bulk, next);
        }
    }

    /// The ceiling: new claims, one after the other. They are withdrawn at once, so that only revived solves stay
    /// active.
    async fn admit(&self, count: usize) -> Result<f64, Failure> {
        let claims: Result<Vec<_>, Failure> = (0..count)
            .map(|_| new_claim("ceiling", challenge()?, (&*self.chance, self.now())))
            .collect();
        let claims = claims?;
        let mut admitted = Vec::with_capacity(count);
        let began = Instant::now();
        for claim in claims {
            admitted.push(admit(&*self.store, claim, self.now()).await?);
        }
        let took = began.elapsed().as_secs_f64() * 1e3;
        for claim in admitted {
            let withdrawn = self.store.withdraw(claim, None, self.now()).await;
            withdrawn.map_err(Failure::of(Exit::Failed))?;
        }
        Ok(took)
    }

    async fn most_revived_in_a_second(&self, from: Timestamp) -> Result<usize, Failure> {
        let entries = self.engine.records().entries(0, usize::MAX).await;
        let entries = entries.map_err(Failure::of(Exit::Failed))?;
        let revived = entries
            .iter()
            .filter(|entry| entry.at >= from && matches!(entry.event, Event::Revived { .. }));
        let moments: Vec<Timestamp> = revived.map(|entry| entry.at).collect();
        Ok(most_within(Duration::from_secs(1), &moments))
    }

    async fn purge_all(&self, measured: &mut DeadLetterFigures) -> Result<(), Failure> {
        for batch in self.batches.iter().chain([&self.paced]) {
            let mut bulk = bulk(batch, UNPACED)?;
            let began = Instant::now();
            loop {
                let purged = self.engine.purge(&bulk).await;
                let (purged, next) = purged.map_err(Failure::of(Exit::Failed))?;
                measured.counts.purged += purged;
                let Some(next) = next else { break };
                continue_from(&mut bulk, next);
            }
            measured.purge.push(each(began, batch));
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.engine.clock().now()
    }
}

/// An engine without slots.
async fn start(
    store: &Arc<dyn Store>,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    chance: &Arc<dyn Chance>,
) -> Result<Engine, Failure> {
    let account = Account::new(BehaviourConfig::new(1));
    let ports = Ports {
        store: Arc::clone(store),
        records,
        notifier: Arc::new(LocalNotifier::new()) as Arc<dyn Notifier>,
        provider: Arc::new(SimProvider::new(account, Arc::clone(&clock), Latency::default())),
        webhooks: Arc::new(NoWebhooks),
        clock,
        chance: Arc::clone(chance),
    };
    let config = EngineConfig {
        declarations: declared(&HOSTS)?,
        slots: Slots::Fixed(0),
        deadline: DEADLINE,
        ..EngineConfig::default()
    };
    Engine::start(ports, config).await.map_err(Failure::of(Exit::Failed))
}

fn bulk(batch: &DeadLetterBatch, rate: u32) -> Result<BulkRequest, Failure> {
    let filter = DeadLetterFilter {
        since: Some(batch.since),
        until: Some(batch.until),
        // For the purge; closed dead letters are never revived.
        closed: true,
        ..DeadLetterFilter::open(Scope::All, PAGE)
    };
    let known = WORKERS.map(|name| WorkerName::new(name).map(|name| (name, Allowance::default())));
    Ok(BulkRequest {
        which: DeadLetterSelection::Matching(filter),
        by: Actor::process(WorkerName::new("bench").map_err(Failure::of(Exit::Failed))?),
        rate,
        dry_run: false,
        allowances: known
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(Failure::of(Exit::Failed))?,
    })
}

/// A call returns after some seconds with a cursor.
fn continue_from(bulk: &mut BulkRequest, next: Cursor) {
    if let DeadLetterSelection::Matching(filter) = &mut bulk.which {
        filter.from = Some(next);
    }
}

/// Milliseconds per dead letter.
fn each(began: Instant, batch: &DeadLetterBatch) -> f64 {
    began.elapsed().as_secs_f64() * 1e3 / as_f64(batch.dead_letters as u64)
}

// === impl DeadLetterFigures ===

impl DeadLetterFigures {
    fn add_to(&self, report: &mut Report, store: &str, rate: u32) {
        let mut add = |what: &str, unit, rounds: &[f64]| {
            report.add(Figure::new(format!("{store}: {what}"), unit, rounds.iter().copied()));
        };
        add("list of the newest 50", "ms", &self.newest);
        add("filter by a rare code", "ms", &self.rare);
        add("filter by host and age", "ms", &self.host);
        let ratios: Vec<f64> = self.revive.iter().zip(&self.admit).map(|(r, a)| r / a).collect();
        add("revive / admit", "x", &ratios);
        add("revive, per dead letter", "ms", &self.revive);
        add("admit, per claim", "ms", &self.admit);
        add("purge, per dead letter", "ms", &self.purge);
        add(&format!("revived at {rate}/s"), "1/s", &[self.kept.per_second]);
        self.add_counts_to(report, store, rate);
    }

    fn add_counts_to(&self, report: &mut Report, store: &str, rate: u32) {
        let count = |what: String, count: usize| {
            Figure::new(format!("{store}: {what}"), "", [as_f64(count as u64)])
        };
        let rate_bar = Bar::AtMost { bar: f64::from(rate), stretch: f64::from(rate) };
        let most = count(format!("at {rate}/s, most in a second"), self.kept.most_in_a_second);
        report.add(most.held_to(rate_bar));
        let Counts { dead_letters, distinct, rare_found, back, opened, under_way, purged } =
            self.counts;
        for (what, number) in [
            ("dead letters", dead_letters),
            ("dead letters that differ", distinct),
            ("dead letters with the rare code", rare_found),
            ("dead letters revived", back),
            ("solves opened for them", opened),
            ("active solves then", under_way),
            ("dead letters purged", purged),
        ] {
            report.add(count(what.to_owned(), number));
        }
    }
}
