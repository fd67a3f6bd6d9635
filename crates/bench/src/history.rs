//! `bench history`: whether lists and totals take longer on a long history. It writes ended claims, a second apart,
//! through the `Archive` port, and measures the queries of the command line and of list pages.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use domain::{
    challenge::Kind,
    claim::Claim,
    id::ClaimId,
    ledger::Entry,
    ports::{
        Archive, ArchiveBatch, Chance as _, ClaimFilter, Cursor, Records, Scope, StoreError,
        TotalsFilter,
    },
    time::Timestamp,
};
use solvegate::{
    chance::SystemChance,
    clock::SystemClock,
    commands::progress::Progress,
    exit::{Exit, Failure},
};

use crate::{
    challenges::on_page,
    cli::HistoryArgs,
    fixtures::claims::StoreFiller,
    remote_store::RemoteStore,
    report::{Bar, Figure, Report},
    requests::ChallengeText,
};

/// The measured queries.
const QUERIES: [&str; 6] =
    ["a page of history", "an old page", "a site key's page", "active", "stats", "explain"];
/// How many times each is run.
const TIMED: usize = 200;

/// Rows per archived claim: the claim, three indexes of claims, the ledger entry and its index.
const ROWS_PER_CLAIM: u64 = 6;
/// Claims per write, as many as the engine archives at a time.
const BATCH: usize = 500;

/// Writes a history of claims that differ in id, site key and time.
struct HistoryFiller<'b> {
    archive: &'b dyn Archive,
    /// An ended claim and its first ledger entry.
    claim: Claim,
    entry: Entry,
    /// The last entry written.
    written: Option<Entry>,
    progress: Progress,
}

struct History<'b> {
    records: &'b dyn Records,
    like: Claim,
    claims: u64,
}

pub(crate) async fn run(args: &HistoryArgs) -> Result<Report, Failure> {
    let mut report = Report::begin("history", args.rounds).without_load();
    let remote = RemoteStore::create(&args.store).await?;
    let timed = time_both(&remote, args).await;
    remote.clear().await?;
    let (rows, small, large) = timed?;
    for (place, query) in QUERIES.iter().enumerate() {
        let (few, many) = (small[place].as_secs_f64(), large[place].as_secs_f64());
        let ratio =
            Figure::new(format!("{query}: {rows} rows / a hundredth"), "x", vec![many / few]);
        report.add(ratio.held_to(Bar::AtMost { bar: 2.0, stretch: 1.3 }));
        report.add(Figure::new(format!("{query}, {rows} rows"), "us", vec![many * 1e6]));
    }
    Ok(report.end())
}

/// The medians on a hundredth of the claims and on all of them, and the number of rows.
async fn time_both(
    remote: &RemoteStore,
    args: &HistoryArgs,
) -> Result<(u64, Vec<Duration>, Vec<Duration>), Failure> {
    let (url, probe) = (remote.url(), remote.postgres()?);
    let connect = async || stores::connect(&url).await.map_err(Failure::of(Exit::Unreachable));
    let writer = connect().await?;
    let (claim, entry) = end_a_claim(&writer).await?;
    let mut filler = HistoryFiller {
        archive: &*writer.archive,
        claim: claim.clone(),
        entry,
        written: None,
        progress: Progress::new("claims", usize::try_from(args.claims).ok(), args.rounds.json),
    };
    // Each reader is a new gateway, so that none has rows in its cache because it wrote them.
    let mut medians = Vec::new();
    let mut from = 0;
    for claims in [(args.claims / 100).max(1), args.claims] {
        filler.fill(from..claims).await?;
        probe.analyze().await.map_err(Failure::of(Exit::Failed))?;
        let reader = connect().await?;
        let history = History { records: &*reader.records, like: claim.clone(), claims };
        medians.push(history.time_all().await.map_err(Failure::of(Exit::Failed))?);
        from = claims;
    }
    let large = medians.pop().unwrap_or_default();
    let small = medians.pop().unwrap_or_default();
    Ok((ROWS_PER_CLAIM * args.claims, small, large))
}

/// A claim that has ended, and its first entry.
async fn end_a_claim(backend: &stores::Backend) -> Result<(Claim, Entry), Failure> {
    let chance = SystemChance::start().map_err(Failure::of(Exit::Failed))?;
    let filler = StoreFiller::start(&*backend.store, &SystemClock::start(), &chance).await?;
    let sitekey = format!("0x4AAA{:06}", chance.draw() % 1000);
    let challenge = on_page(Kind::Turnstile, sitekey, &ChallengeText::new().pageurl)?;
    let id = filler.open(challenge).await?;
    filler.withdraw(id).await?;
    let claim = backend.store.find_claim(id).await.map_err(Failure::of(Exit::Failed))?;
    let entries = backend.records.entries(0, 100).await.map_err(Failure::of(Exit::Failed))?;
    let (first, last) = (entries.first().cloned(), entries.last().map_or(0, |entry| entry.seq));
    let told = first.map(|entry| Entry { seq: last, ..entry });
    claim.zip(told).ok_or_else(|| Failure::new(Exit::Failed, "the store forgot a claim"))
}

// === impl HistoryFiller ===

impl HistoryFiller<'_> {
    /// Writes the claims with these numbers; higher numbers are older.
    async fn fill(&mut self, numbers: Range<u64>) -> Result<(), Failure> {
        for from in numbers.clone().step_by(BATCH) {
            let to = numbers.end.min(from + BATCH as u64);
            let claims: Vec<Claim> = (from..to).map(|number| self.claim(number)).collect();
            let entries: Vec<Entry> =
                (from..to).zip(&claims).map(|(number, claim)| self.entry(number, claim)).collect();
            let last = entries.last().cloned();
            let batch = ArchiveBatch {
                after: self.written.take(),
                entries,
                claims,
                ..ArchiveBatch::default()
            };
            let is_written =
                self.archive.archive(batch).await.map_err(Failure::of(Exit::Failed))?;
            if !is_written {
                let why = "another process writes history into the schema of this bench";
                return Err(Failure::new(Exit::Failed, why));
            }
            self.written = last;
            self.progress.add(to - from);
        }
        Ok(())
    }

    fn claim(&self, number: u64) -> Claim {
        let at = |moment: Timestamp| moment.minus(Duration::from_secs(1 + number));
        Claim {
            id: ClaimId::from_number(900_000_000_000_000 + number),
            sitekey: Some(format!("0x4AAA{:04}", number % 100)),
            opened_at: at(self.claim.opened_at),
            ended_at: self.claim.ended_at.map(at),
            ..self.claim.clone()
        }
    }

    fn entry(&self, number: u64, claim: &Claim) -> Entry {
        let seq = self.entry.seq + 1 + number;
        Entry { seq, at: claim.opened_at, claim: Some(claim.id), ..self.entry.clone() }
    }
}

// === impl History ===

impl History<'_> {
    async fn time_all(&self) -> Result<Vec<Duration>, StoreError> {
        let mut medians = Vec::new();
        for place in 0..QUERIES.len() {
            let mut took = Vec::with_capacity(TIMED);
            for number in 0..TIMED {
                let start = now();
                self.query(place, number as u64).await?;
                took.push(start.elapsed());
            }
            took.sort_unstable();
            medians.push(took[TIMED / 2]);
        }
        Ok(medians)
    }

    async fn query(&self, place: usize, number: u64) -> Result<(), StoreError> {
        let back = |claims: u64| self.like.opened_at.minus(Duration::from_secs(claims));
        match place {
            0 => self.page(None, None).await,
            1 => self.page(Some(back(self.claims / 2 + number)), None).await,
            2 => self.page(None, Some(format!("0x4AAA{:04}", number % 100))).await,
            3 => self.records.active(Scope::All, 50).await.map(drop),
            4 => {
                let today = self.like.opened_at.day();
                let ask = TotalsFilter { scope: Scope::All, from: today, to: today };
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
        let from = from.map(|at| Cursor { at, id: u64::MAX });
        let filter = ClaimFilter { sitekey, from, ..ClaimFilter::all(Scope::All, 50) };
        let page = self.records.history(filter).await?;
        debug_assert!(!page.items.is_empty() || self.claims < 1000);
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}
