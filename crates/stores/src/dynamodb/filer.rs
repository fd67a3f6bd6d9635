//! Filing: the changes of the log are written into the sheets, so that who starts need not read a long log. One gateway
//! files at a time. Whoever finds that the one who files has not moved for a whole lease takes its place.
//!
//! A filer that was thought dead may go on for a while. Its transactions check that it still is the filer; its other
//! writes only replace sheets that are older than what it files, and whoever took its place has written all of those.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem};
use domain::ports::StoreError;
use futures_util::future::try_join_all;

use crate::{
    remote::Key,
    tables::{Joinable, Keys, Pools, Spare, Stock, Table, Tasks, Waiting},
};

use super::{
    failure::unavailable,
    layout::{
        BEAT, Changes, EDITION, FILED, FILER, PK, Sheet, Value, head_key, key, number,
        sheet_partition, table_least,
    },
    link::{Condition, Written},
    log::Log,
};

/// Somebody who files.
struct Filer {
    name: u64,
    /// Who else was seen filing, and since when it has not moved.
    watched: Option<((u64, u64), Instant)>,
}

/// One filing.
struct Filing<'l> {
    log: &'l Log,
    filer: u64,
    /// Commits up to this one are filed.
    slot: u64,
    /// Somebody else may still write what is older than this.
    is_takeover: bool,
}

/// Who has not moved for so long is dead.
const LEASE: Duration = Duration::from_secs(30);
const BEATS: Duration = Duration::from_secs(5);
/// How often it is looked whether there is something to do, without being told.
const LOOK: Duration = Duration::from_secs(5);
/// Rows added to a sheet in one go: a transaction has a hundred items at most.
const LOT: usize = 60;
/// A sheet is paid for by the kibibyte. Rows that come in the order of their keys fill sheets one after the other; others
/// come one to a sheet, which should be small.
const SHEET: usize = 3900;
const SMALL_SHEET: usize = 850;
/// What a row takes up besides key and value.
const ROW: usize = 6;

/// Files as long as the log is followed.
pub(super) fn start(log: &Arc<Log>) {
    let is_full = Arc::clone(&log.is_full);
    let log = Arc::downgrade(log);
    tokio::spawn(async move {
        let mut filer = Filer { name: fastrand::u64(1..), watched: None };
        loop {
            drop(tokio::time::timeout(LOOK, is_full.notified()).await);
            let Some(log) = Weak::upgrade(&log) else { return };
            if !log.state().is_full() {
                continue;
            }
            if let Err(error) = filer.file(&log).await {
                tracing::warn!(%error, "compaction failed, retrying");
                tokio::time::sleep(LOOK).await;
            }
        }
    });
}

// === impl Filer ===

impl Filer {
    /// Files everything there is, unless somebody else is at it.
    async fn file(&mut self, log: &Log) -> Result<(), StoreError> {
        let head = log.look_at_head().await?;
        if !log.state().is_full() {
            return Ok(());
        }
        let Some(is_takeover) = self.may_take(head.filer) else {
            tokio::time::sleep(LOOK).await;
            return Ok(());
        };
        if !self.take(log, head.filer).await? {
            return Ok(());
        }
        log.read_on().await?;
        let (slot, changes) = {
            let state = log.state();
            let changes = state.recent.iter().map(|(key, (_, value))| (key.clone(), value.clone()));
            (state.slot, changes.collect::<Changes>())
        };
        let filing = Filing { log, filer: self.name, slot, is_takeover };
        filing.file_while_beating(&changes).await?;
        filing.finish().await?;
        log.state().is_filed_up_to(slot);
        self.watched = None;
        Ok(())
    }

    /// Whether to become the filer, and if so, whether in the place of somebody.
    fn may_take(&mut self, filer: Option<(u64, u64)>) -> Option<bool> {
        let Some(seen) = filer else { return Some(false) };
        if seen.0 == self.name {
            // This process, which gave up in the middle.
            return Some(true);
        }
        match self.watched {
            Some((before, since)) if before == seen => (since.elapsed() >= LEASE).then_some(true),
            _ => {
                self.watched = Some((seen, Instant::now()));
                None
            }
        }
    }

    async fn take(&self, log: &Log, before: Option<(u64, u64)>) -> Result<bool, StoreError> {
        let mut condition = Condition {
            text: "attribute_exists(#p) AND attribute_not_exists(#w)",
            names: vec![("#p", PK), ("#w", FILER), ("#b", BEAT)],
            values: vec![(":me", number(self.name)), (":new", number(fastrand::u64(..)))],
        };
        if let Some((filer, beat)) = before {
            condition.text = "attribute_exists(#p) AND #w = :filer AND #b = :beat";
            condition.values.extend([(":filer", number(filer)), (":beat", number(beat))]);
        }
        let taken = log.link.update(head_key(), "SET #w = :me, #b = :new", condition).await;
        Ok(match taken.map_err(|failure| log.failed(failure))? {
            Written::Done => true,
            // The request may have met itself.
            Written::Refused(item) => item
                .and_then(|item| super::layout::read_head(&item).ok())
                .is_some_and(|head| head.filer.is_some_and(|(filer, _)| filer == self.name)),
        })
    }
}

// === impl Filing ===

impl Filing<'_> {
    async fn file_while_beating(&self, changes: &Changes) -> Result<(), StoreError> {
        let tables: Vec<_> = changes.chunk_by(|a, b| a.0[0] == b.0[0]).collect();
        let work = try_join_all(tables.into_iter().map(|table| self.file_table(table)));
        tokio::select! {
            done = work => done.map(drop),
            failed = self.beat() => Err(failed),
        }
    }

    /// Says now and then that this filer lives; ends when it is not the filer any more.
    async fn beat(&self) -> StoreError {
        loop {
            tokio::time::sleep(BEATS).await;
            let condition = Condition {
                text: "#w = :me",
                names: vec![("#w", FILER), ("#b", BEAT)],
                values: vec![(":me", number(self.filer)), (":new", number(fastrand::u64(..)))],
            };
            match self.log.link.update(head_key(), "SET #b = :new", condition).await {
                Ok(Written::Done) => {}
                Ok(Written::Refused(_)) => return replaced(),
                Err(failure) => return self.log.failed(failure),
            }
        }
    }

    /// From now on the log is read from after these commits.
    async fn finish(&self) -> Result<(), StoreError> {
        let condition = Condition {
            text: "#w = :me",
            names: vec![("#w", FILER), ("#b", BEAT), ("#f", FILED)],
            values: vec![(":me", number(self.filer)), (":slot", number(self.slot))],
        };
        let finished =
            self.log.link.update(head_key(), "SET #f = :slot REMOVE #w, #b", condition).await;
        match finished.map_err(|failure| self.log.failed(failure))? {
            Written::Done => Ok(()),
            // The request may have met itself; whoever came after has filed at least as much.
            Written::Refused(_) => match self.log.look_at_head().await? {
                head if head.filed >= self.slot => Ok(()),
                _ => Err(replaced()),
            },
        }
    }

    /// Files the changes of one table, in the order of their keys.
    async fn file_table(&self, changes: &[(Key, Option<Value>)]) -> Result<(), StoreError> {
        let mut rest = changes;
        while let Some((first, _)) = rest.first() {
            let sheet = self.log.sheet_at(first).await?;
            let Some(sheet) = sheet.filter(|sheet| sheet.filed <= self.slot) else {
                return Err(replaced());
            };
            let here = rest.partition_point(|(key, _)| *key < sheet.until).clamp(1, LOT);
            let (here, later) = rest.split_at(here);
            self.file_sheet(&sheet, here).await?;
            rest = later;
        }
        Ok(())
    }

    async fn file_sheet(
        &self,
        sheet: &Sheet,
        changes: &[(Key, Option<Value>)],
    ) -> Result<(), StoreError> {
        let mut rows: BTreeMap<&Key, &Value> =
            sheet.rows.iter().map(|(key, value)| (key, value)).collect();
        let mut is_changed = false;
        for (key, value) in changes {
            is_changed |= match value {
                Some(value) => rows.insert(key, value) != Some(value),
                None => rows.remove(key).is_some(),
            };
        }
        // What somebody else may still write has to become newer than that, changed or not.
        let must_be_newer = self.is_takeover && is_there(sheet);
        if !is_changed && !must_be_newer {
            return Ok(());
        }
        if rows.is_empty() && is_there(sheet) && sheet.least != table_least(sheet.tag()) {
            return self.remove(sheet).await;
        }
        let pieces = self.pieces(sheet, &rows);
        match pieces.as_slice() {
            [only] if is_there(sheet) => self.replace(sheet, only).await,
            _ => self.split(sheet, &pieces).await,
        }
    }

    /// The rows of a sheet on as many sheets as they need.
    fn pieces(&self, sheet: &Sheet, rows: &BTreeMap<&Key, &Value>) -> Vec<Sheet> {
        let size_of = |key: &Key, value: &Value| key.len() + value.size() + ROW;
        let whole: usize = rows.iter().map(|(key, value)| size_of(key, value)).sum();
        let most = match most_of(sheet.tag()) {
            // Rows come anywhere: there has to be room between them.
            SMALL_SHEET if whole > SMALL_SHEET => SMALL_SHEET * 2 / 3,
            most => most,
        };
        let mut pieces = vec![self.edition(sheet.least.clone(), sheet.until.clone())];
        let mut size = 0;
        for (key, value) in rows {
            let more = size_of(key, value);
            let last = pieces.last_mut().expect("there is one from the beginning");
            if size + more > most && !last.rows.is_empty() {
                let until = std::mem::replace(&mut last.until, (*key).clone());
                pieces.push(self.edition((*key).clone(), until));
                size = 0;
            }
            size += more;
            let last = pieces.last_mut().expect("there is one from the beginning");
            last.rows.push(((*key).clone(), (*value).clone()));
        }
        pieces
    }

    /// An empty sheet of this filing.
    fn edition(&self, least: Key, until: Key) -> Sheet {
        Sheet { least, until, filed: self.slot, edition: fastrand::u64(1..), rows: Vec::new() }
    }

    /// Writes a sheet over what it was.
    async fn replace(&self, before: &Sheet, sheet: &Sheet) -> Result<(), StoreError> {
        let put = self.log.link.put(sheet.item(), self.is_ours(before)).await;
        match put.map_err(|failure| self.log.failed(failure))? {
            Written::Done => Ok(()),
            // The request may have met itself.
            Written::Refused(Some(item)) if Sheet::read(&item)?.edition == sheet.edition => Ok(()),
            Written::Refused(_) => Err(replaced()),
        }
    }

    /// Writes sheets in the place of one, or the first of a table.
    async fn split(&self, sheet: &Sheet, pieces: &[Sheet]) -> Result<(), StoreError> {
        let mut actions = vec![self.is_filer()];
        for piece in pieces {
            let is_first = piece.least == sheet.least && is_there(sheet);
            let condition = if is_first { self.is_ours(sheet) } else { Condition::is_new() };
            actions.push(self.put_if(piece, &condition));
        }
        self.transact(actions).await
    }

    /// Takes an empty sheet away; the one before it reaches as far as it did.
    async fn remove(&self, sheet: &Sheet) -> Result<(), StoreError> {
        let found = self.log.sheets_before(sheet.tag(), Some(&sheet.least), 2).await?;
        let before = found.into_iter().find(|one| one.until == sheet.least);
        let Some(before) = before else { return Err(replaced()) };
        let longer = Sheet {
            rows: before.rows.clone(),
            ..self.edition(before.least.clone(), sheet.until.clone())
        };
        let delete = Delete::builder()
            .table_name(self.log.link.table())
            .set_key(Some(key(sheet_partition(sheet.tag()), &sheet.least)))
            .build()
            .expect("table and key are given");
        let delete = TransactWriteItem::builder().delete(delete).build();
        self.transact(vec![self.is_filer(), self.put_if(&longer, &self.is_ours(&before)), delete])
            .await
    }

    async fn transact(&self, actions: Vec<TransactWriteItem>) -> Result<(), StoreError> {
        let written = self.log.link.transact(actions).await;
        match written.map_err(|failure| self.log.failed(failure))? {
            Written::Done => Ok(()),
            Written::Refused(_) => Err(replaced()),
        }
    }

    /// Holds while nobody took this filer's place.
    fn is_filer(&self) -> TransactWriteItem {
        let check = ConditionCheck::builder()
            .table_name(self.log.link.table())
            .set_key(Some(head_key()))
            .condition_expression("#w = :me")
            .expression_attribute_names("#w", FILER)
            .expression_attribute_values(":me", number(self.filer))
            .build()
            .expect("table, key and condition are given");
        TransactWriteItem::builder().condition_check(check).build()
    }

    /// Holds for a sheet that is older than this filing, or was written by it and not since it was read. A copy of a
    /// request that comes late finds it otherwise.
    fn is_ours(&self, read: &Sheet) -> Condition {
        Condition {
            text: "#f < :slot OR (#f = :slot AND #e = :read)",
            names: vec![("#f", FILED), ("#e", EDITION)],
            values: vec![(":slot", number(self.slot)), (":read", number(read.edition))],
        }
    }

    fn put_if(&self, sheet: &Sheet, condition: &Condition) -> TransactWriteItem {
        let put = Put::builder()
            .table_name(self.log.link.table())
            .set_item(Some(sheet.item()))
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names()))
            .set_expression_attribute_values(condition.values())
            .build()
            .expect("table and item are given");
        TransactWriteItem::builder().put(put).build()
    }
}

/// Whether it is in the table, and not only thought of.
fn is_there(sheet: &Sheet) -> bool {
    sheet.filed > 0
}

fn most_of(tag: u8) -> usize {
    let scattered =
        [Keys::TAG, Waiting::TAG, Joinable::TAG, Stock::TAG, Tasks::TAG, Pools::TAG, Spare::TAG];
    if scattered.contains(&tag) { SMALL_SHEET } else { SHEET }
}

fn replaced() -> StoreError {
    unavailable("another gateway files in this one's place")
}
