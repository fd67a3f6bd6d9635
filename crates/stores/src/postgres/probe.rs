//! For benches: what the server says about a store, a history that nobody lived through, and taking it all away again.

use std::{
    fmt,
    time::{Duration, Instant},
};

use domain::{claim::Claim, id::ClaimId, ledger::Entry, ports::StoreError, time::Timestamp};

use crate::{
    OpenError,
    codec::{key_bytes, row_bytes},
    remote::{Key, Stamp},
    shelf::{Table, Text},
    tables::{BySitekey, ByTime, ByWorker, Claims, Pages, Subject, Told},
};

use super::{
    NAME, READERS,
    link::{Failure, Line, Step, send},
    server::unavailable,
    sql::{Ask, Place},
};

/// A server with a store on it, seen from beside.
pub struct PostgresProbe {
    line: Line,
}

/// What a store has done and takes up.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostgresUse {
    /// Commits of all gateways.
    pub commits: u64,
    /// Bytes on disk, tables and indexes.
    pub bytes: u64,
    /// Transactions of the whole database that were taken back, as far as the server has told; a conflict is one.
    pub rollbacks: u64,
}

/// Rows of one table to be written.
type Rows = Vec<(Key, Vec<u8>)>;

/// Claims in one lot.
const LOT: u64 = 5000;
/// The version of every row that nobody wrote.
const STAMP: Stamp = [1; 8];

impl PostgresProbe {
    /// Goes to the server of a store's URL.
    pub fn new(url: &str) -> Result<Self, OpenError> {
        let (address, secure) = super::parse(url)?;
        Ok(Self { line: Line::new(address, secure, READERS) })
    }

    /// One question, there and back, on as many connections as a gateway has for looks.
    pub async fn round_trip(&self) -> Result<(), StoreError> {
        let ask = Ask { text: "SELECT 1".to_owned(), params: Vec::new() };
        self.line.run(&[Step::Ask(ask)]).await.map(drop).map_err(failed)
    }

    /// What the store has done by now.
    pub async fn usage(&self) -> Result<PostgresUse, StoreError> {
        let schema = &self.line.address.schema;
        let client = self.line.client_alone().await.map_err(failed)?;
        let asked = format!(
            "SELECT (SELECT commits FROM \"{schema}\".head), \
             (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class \
              WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'), \
             (SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database())"
        );
        let row = client.query_typed_one(&asked, &[]).await.map_err(broken)?;
        let number = |at: usize| row.try_get::<_, i64>(at).map_err(broken);
        Ok(PostgresUse {
            commits: u64::try_from(number(0)?).unwrap_or(0),
            bytes: u64::try_from(number(1)?).unwrap_or(0),
            rollbacks: u64::try_from(number(2)?).unwrap_or(0),
        })
    }

    /// Adds claims that are over, each like this one but for its name, its site key and its time, a second apart, the newest
    /// just before it; with their pages of the ledger, numbered from `first`. Gives the number of rows written.
    pub async fn add_history(
        &self,
        like: &Claim,
        told: &Entry,
        numbers: std::ops::Range<u64>,
    ) -> Result<u64, StoreError> {
        let client = self.line.client_alone().await.map_err(failed)?;
        client.batch_execute("SET synchronous_commit = off").await.map_err(broken)?;
        let schema = &self.line.address.schema;
        let mut written = 0;
        let mut from = numbers.start;
        while from < numbers.end {
            let to = numbers.end.min(from + LOT);
            for (tag, rows) in lot(like, told, from..to)? {
                let rows: Vec<_> = rows.iter().map(|(key, body)| (key, body.as_slice())).collect();
                let ask = Place::new(schema, tag).put(&rows, STAMP)?;
                written += rows.len() as u64;
                run(&client, ask).await?;
            }
            from = to;
        }
        client.batch_execute("ANALYZE").await.map_err(broken)?;
        Ok(written)
    }

    /// How many commits of one row the server makes in this time, each on disk, one after the other: what stands in line
    /// cannot be faster.
    pub async fn bare_commits(&self, length: Duration) -> Result<u64, StoreError> {
        let client = self.line.client_alone().await.map_err(failed)?;
        let table = format!("\"{}\".bare", self.line.address.schema);
        let made = format!(
            "SET synchronous_commit = on; DROP TABLE IF EXISTS {table}; \
             CREATE TABLE {table} (made bigint NOT NULL); INSERT INTO {table} VALUES (0)"
        );
        client.batch_execute(&made).await.map_err(broken)?;
        let one = format!("UPDATE {table} SET made = made + 1");
        let start = Instant::now();
        let mut commits = 0;
        while start.elapsed() < length {
            client.execute_typed(&one, &[]).await.map_err(broken)?;
            commits += 1;
        }
        Ok(commits)
    }

    /// Removes the store.
    pub async fn clear(&self) -> Result<(), StoreError> {
        let client = self.line.client_alone().await.map_err(failed)?;
        let schema = &self.line.address.schema;
        client
            .batch_execute(&format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE"))
            .await
            .map_err(broken)
    }
}

async fn run(client: &tokio_postgres::Client, ask: Ask) -> Result<(), StoreError> {
    send(client, &Step::Ask(ask)).await.map(drop).map_err(broken)
}

/// The rows of some claims, table by table.
fn lot(
    like: &Claim,
    told: &Entry,
    numbers: std::ops::Range<u64>,
) -> Result<Vec<(u8, Rows)>, StoreError> {
    let (mut claims, mut times, mut workers) = (Rows::new(), Rows::new(), Rows::new());
    let (mut sites, mut pages, mut tellings) = (Rows::new(), Rows::new(), Rows::new());
    for number in numbers {
        let claim = made(like, number);
        let (id, at) = (claim.id, claim.opened_at);
        let worker = Text::new(claim.worker.as_str());
        let sitekey = Text::new(claim.sitekey.as_deref().unwrap_or_default());
        let entry = Entry { seq: told.seq + 1 + number, at, claim: Some(id), ..told.clone() };
        tellings.push(plain::<Told>(&(Subject::Claim(id), entry.seq)));
        pages.push(row::<Pages>(&entry.seq.clone(), &vec![entry])?);
        times.push(plain::<ByTime>(&(at, id)));
        workers.push(plain::<ByWorker>(&(worker, at, id)));
        sites.push(plain::<BySitekey>(&(sitekey, at, id)));
        claims.push(row::<Claims>(&id, &claim)?);
    }
    Ok(vec![
        (Claims::TAG, claims),
        (ByTime::TAG, times),
        (ByWorker::TAG, workers),
        (BySitekey::TAG, sites),
        (Pages::TAG, pages),
        (Told::TAG, tellings),
    ])
}

fn made(like: &Claim, number: u64) -> Claim {
    let at = |moment: Timestamp| moment.minus(Duration::from_secs(1 + number));
    Claim {
        id: ClaimId::from_number(900_000_000_000_000 + number),
        sitekey: Some(format!("0x4AAA{:04}", number % 100)),
        opened_at: at(like.opened_at),
        ended_at: like.ended_at.map(at),
        ..like.clone()
    }
}

fn plain<T: Table>(key: &T::Key) -> (Key, Vec<u8>) {
    (key_bytes::<T>(key).into(), Vec::new())
}

fn row<T: Table>(key: &T::Key, value: &T::Value) -> Result<(Key, Vec<u8>), StoreError> {
    let key = key_bytes::<T>(key);
    let body = row_bytes::<T>(NAME, &key, value)?;
    Ok((key.into(), body))
}

fn failed(failure: Failure) -> StoreError {
    unavailable(failure.why)
}

fn broken(error: tokio_postgres::Error) -> StoreError {
    failed(error.into())
}

impl fmt::Debug for PostgresProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresProbe").finish_non_exhaustive()
    }
}
