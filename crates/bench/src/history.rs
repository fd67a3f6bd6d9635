//! `bench history`: whether lists and sums take longer when there is a long past. Claims that are over are written straight
//! into the tables; what is asked for is what the command line and the pages ask for.

use std::time::{Duration, Instant};

use domain::{
    challenge::Kind,
    claim::Claim,
    ledger::Entry,
    ports::{Chance as _, ClaimFilter, Cursor, Records, Scope, StoreError, TotalsAsk},
    time::Timestamp,
};
use solvegate::{
    chance::SystemChance,
    clock::SystemClock,
    exit::{Exit, Failure},
};
use stores::PostgresProbe;

use crate::{
    challenges::on_page,
    cli::HistoryArgs,
    fixtures::claims::Filler,
    remote_store::Far,
    report::{Bar, Figure, Report},
    requests::Asked,
};

/// What is asked for.
const QUESTIONS: [&str; 6] =
    ["a page of history", "an old page", "a site key's page", "active", "stats", "explain"];
/// How often each is asked.
const TIMED: usize = 200;

/// A history, and one of its claims.
struct Past<'b> {
    records: &'b dyn Records,
    like: Claim,
    claims: u64,
}

/// Runs it.
pub(crate) async fn run(args: &HistoryArgs) -> Result<Report, Failure> {
    let mut report = Report::begin("history", args.rounds).without_load();
    let far = Far::open(&args.store).await?;
    let Some(probe) = far.postgres() else {
        return Err(Failure::new(Exit::Usage, "expected postgres://"));
    };
    let timed = time_both(&far.url(), probe, args.claims).await;
    far.clear().await?;
    let (rows, small, large) = timed?;
    for (place, question) in QUESTIONS.iter().enumerate() {
        let (few, many) = (small[place].as_secs_f64(), large[place].as_secs_f64());
        let ratio =
            Figure::new(format!("{question}: {rows} rows / a hundredth"), "x", vec![many / few]);
        report.add(ratio.held_to(Bar::AtMost { bar: 2.0, stretch: 1.3 }));
        report.add(Figure::new(format!("{question}, {rows} rows"), "us", vec![many * 1e6]));
    }
    Ok(report.end())
}

/// The medians on a hundredth of the claims and on all of them, and how many rows those are.
async fn time_both(
    url: &str,
    probe: &PostgresProbe,
    claims: u64,
) -> Result<(u64, Vec<Duration>, Vec<Duration>), Failure> {
    let backend = stores::connect(url).await.map_err(Failure::of(Exit::Unreachable))?;
    let (like, told) = live_once(&backend).await?;
    let failed = |error: StoreError| Failure::new(Exit::Failed, error);
    let few = (claims / 100).max(1);
    let mut rows = probe.add_history(&like, &told, 0..few).await.map_err(failed)?;
    let past = Past { records: &*backend.records, like: like.clone(), claims: few };
    let small = past.time_all().await.map_err(failed)?;
    rows += probe.add_history(&like, &told, few..claims).await.map_err(failed)?;
    let past = Past { claims, ..past };
    let large = past.time_all().await.map_err(failed)?;
    Ok((rows, small, large))
}

/// One claim that is really over, and its first entry.
async fn live_once(backend: &stores::Backend) -> Result<(Claim, Entry), Failure> {
    let chance = SystemChance::start().map_err(Failure::of(Exit::Failed))?;
    let filler = Filler::start(&*backend.store, &SystemClock::start(), &chance).await?;
    let sitekey = format!("0x4AAA{:06}", chance.draw() % 1000);
    let challenge = on_page(Kind::Turnstile, sitekey, &Asked::new().pageurl)?;
    let id = filler.open(challenge).await?;
    filler.take_back(id).await?;
    let claim = backend.store.find_claim(id).await.map_err(Failure::of(Exit::Failed))?;
    let entries = backend.records.entries(0, 100).await.map_err(Failure::of(Exit::Failed))?;
    let (first, last) = (entries.first().cloned(), entries.last().map_or(0, |entry| entry.seq));
    let told = first.map(|entry| Entry { seq: last, ..entry });
    claim.zip(told).ok_or_else(|| Failure::new(Exit::Failed, "the store forgot a claim"))
}

// === impl Past ===

impl Past<'_> {
    async fn time_all(&self) -> Result<Vec<Duration>, StoreError> {
        let mut medians = Vec::new();
        for place in 0..QUESTIONS.len() {
            let mut took = Vec::with_capacity(TIMED);
            for number in 0..TIMED {
                let start = now();
                self.ask(place, number as u64).await?;
                took.push(start.elapsed());
            }
            took.sort_unstable();
            medians.push(took[TIMED / 2]);
        }
        Ok(medians)
    }

    async fn ask(&self, place: usize, number: u64) -> Result<(), StoreError> {
        let back = |claims: u64| self.like.opened_at.minus(Duration::from_secs(claims));
        match place {
            0 => self.page(None, None).await,
            1 => self.page(Some(back(self.claims / 2 + number)), None).await,
            2 => self.page(None, Some(format!("0x4AAA{:04}", number % 100))).await,
            3 => self.records.active(Scope::All, 50).await.map(drop),
            4 => {
                let today = self.like.opened_at.day();
                let ask = TotalsAsk { scope: Scope::All, from: today, to: today };
                self.records.totals(ask).await.map(drop)
            }
            _ => self.records.explain(self.like.id).await.map(drop),
        }
    }

    async fn page(
        &self,
        from: Option<Timestamp>,
        sitekey: Option<String>,
    ) -> Result<(), StoreError> {
        let filter = ClaimFilter {
            scope: Scope::All,
            sitekey,
            kind: None,
            state: None,
            project: None,
            from: from.map(|at| Cursor { at, id: u64::MAX }),
            limit: 50,
        };
        let page = self.records.history(filter).await?;
        debug_assert!(!page.items.is_empty() || self.claims < 1000);
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}
