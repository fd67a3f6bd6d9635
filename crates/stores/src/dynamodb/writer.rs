//! The one task of this process that writes: crowds of decisions, each one item of the log. Whoever writes the item of the
//! next slot has decided on everything before it; whoever is refused is told who was there, and decides again.

use std::{collections::BTreeMap, sync::Arc};

use domain::ports::StoreError;

use crate::remote::{
    Asks, Assumed, Commit, Correction, Ended, Failed, Far, Key, Memory, Scribe, Stamp, Turn, Write,
    crowd,
};

use super::{
    DynamoDb,
    apart::{Parcel, put_parts},
    failure::Trouble,
    known::Known,
    layout::{Item, LONG, Record, Value, read_commit},
    link::{Condition, Written},
    log::Log,
    view::{Needs, Range, row},
};

/// What the task works with.
struct Pen {
    log: Arc<Log>,
    memory: Memory,
    /// What of the image is complete.
    known: Known,
    /// The last commit of this task.
    last: Option<Stamp>,
    /// The log was begun anew since.
    beginning: u64,
    gateway: u64,
    /// Large values of the crowd that is being written, and where they lie: it may be made again.
    laid: Vec<(Arc<[u8]>, Value)>,
}

/// Something was not as assumed. It is known now, but not whether there is more: the end of the log was not looked for, and
/// whoever then has nothing to write has to.
const BEHIND: Ended = Ended::Refused;

/// Starts the task.
pub(super) fn start(log: Arc<Log>) -> Asks {
    let (asks, asked) = Asks::new(&DynamoDb::KIND);
    let beginning = log.state().beginning;
    let pen = Pen {
        log,
        memory: Memory::keeping_all(DynamoDb::KIND),
        known: Known::default(),
        last: None,
        beginning,
        gateway: fastrand::u64(1..),
        laid: Vec::new(),
    };
    tokio::spawn(crowd::write_all(pen, asked));
    asks
}

impl Pen {
    /// Takes what others committed into the image; says whether it changes anything that was assumed.
    fn catch_up(&mut self, assumed: &Assumed) -> bool {
        let beginning = self.log.state().beginning;
        if beginning != self.beginning {
            self.beginning = beginning;
            self.forget_all();
            return true;
        }
        let mut is_changed = false;
        for record in self.log.take_unseen() {
            if Some(record.nonce) == self.last {
                continue;
            }
            for (key, value) in &record.changes {
                is_changed |= is_assumed(assumed, key);
                self.learn_row(key, value.as_ref());
            }
        }
        is_changed
    }

    fn learn_row(&mut self, key: &Key, value: Option<&Value>) {
        match value {
            _ if !self.known.has(key) => {}
            Some(Value::Here(bytes)) => {
                let row = Some(row(bytes.clone()));
                self.memory.image.correct(Correction::Row(key.clone(), row));
            }
            // It is fetched when somebody looks at it.
            Some(Value::Apart(_)) => self.known.forget(key),
            None => self.memory.image.correct(Correction::Row(key.clone(), None)),
        }
    }

    fn forget_all(&mut self) {
        self.memory.image.clear();
        self.known.clear();
    }

    /// Whether everything that was assumed is known to be so. If not, what is wrong with it; it is known from then on.
    async fn check(&mut self, assumed: &Assumed) -> Result<Option<Ended>, StoreError> {
        let is_changed = self.catch_up(assumed);
        let needs = self.unknown(assumed);
        if !needs.is_empty() {
            self.learn(&needs).await?;
            self.catch_up(&Assumed::default());
            return Ok(Some(Ended::Stale(Vec::new())));
        }
        Ok(is_changed.then_some(BEHIND))
    }

    /// What of the assumptions this process only guessed.
    fn unknown(&self, assumed: &Assumed) -> Needs {
        let rows = assumed.rows.keys().filter(|key| !self.known.has(key)).cloned().collect();
        let mut ranges = Vec::new();
        for (span, found) in &assumed.spans {
            let looked_at = span.told(found.until.as_ref());
            if self.known.gap(&looked_at).is_some() {
                ranges.push(Range::all_of(span, found.to_tell()));
            }
        }
        Needs { rows, ranges }
    }

    /// Learns what was guessed, as it is now.
    async fn learn(&mut self, needs: &Needs) -> Result<(), StoreError> {
        self.log.read_on().await?;
        let view = self.log.view(needs).await?;
        for stretch in view.rows.into_iter().chain(view.ranges.into_iter().flatten()) {
            let mut rows = Vec::with_capacity(stretch.rows.len());
            for (key, value) in stretch.rows {
                rows.push((key, row(self.log.value(&value).await?)));
            }
            self.memory.image.learn(stretch.from.clone()..stretch.to.clone(), rows);
            self.known.add(stretch.from, stretch.to);
        }
        Ok(())
    }

    /// Writes the next item of the log.
    async fn put(&mut self, commit: &Commit) -> Result<Ended, Failed> {
        let parcel = self.pack(commit).await.map_err(Failed::sure)?;
        loop {
            if self.catch_up(&commit.assumed) {
                return Ok(BEHIND);
            }
            let slot = self.log.state().slot + 1;
            let item = parcel.item(slot, commit.stamp, self.gateway);
            match self.log.link.put(item, Condition::is_new()).await {
                Ok(Written::Done) => return Ok(self.done(slot, commit.stamp, &parcel)),
                Ok(Written::Refused(item)) => {
                    if let Some(slot) = self.meet(item, commit.stamp).await.map_err(Failed::sure)? {
                        return Ok(self.done(slot, commit.stamp, &parcel));
                    }
                }
                Err(failure) => {
                    let is_open = failure.sort == Trouble::Unknown;
                    return Err(Failed { why: self.log.failed(failure), is_open });
                }
            }
        }
    }

    /// Takes in whoever was there first. A request that arrived twice meets itself: then this is its slot.
    async fn meet(&mut self, item: Option<Item>, nonce: Stamp) -> Result<Option<u64>, StoreError> {
        if let Some(item) = item {
            let (slot, other, body) = read_commit(&item)?;
            if other == nonce {
                return Ok(Some(slot));
            }
            self.log.take_in(slot, other, body).await?;
        }
        // Who is far behind would never come to the end one by one: the others go on meanwhile.
        self.log.read_on().await?;
        Ok(None)
    }

    fn done(&mut self, slot: u64, nonce: Stamp, parcel: &Parcel) -> Ended {
        let record = Record { slot, nonce, changes: parcel.changes.clone() };
        self.last = Some(nonce);
        self.laid.clear();
        self.log.committed(&record, parcel.size());
        Ended::Done
    }

    /// A commit as it is written; what is too large for an item is put apart first.
    async fn pack(&mut self, commit: &Commit) -> Result<Parcel, StoreError> {
        let mut changes = Vec::with_capacity(commit.writes.len());
        for (key, write) in &commit.writes {
            let value = match write {
                Write::Put(bytes) if bytes.len() > LONG => Some(self.lay(bytes).await?),
                Write::Put(bytes) => Some(Value::Here(Arc::clone(bytes))),
                Write::Gone => None,
            };
            changes.push((key.clone(), value));
        }
        Parcel::new(&self.log, changes, commit.stamp).await
    }

    async fn lay(&mut self, bytes: &Arc<[u8]>) -> Result<Value, StoreError> {
        if let Some((_, value)) = self.laid.iter().find(|(laid, _)| laid == bytes) {
            return Ok(value.clone());
        }
        let nonce = fastrand::u64(..).to_be_bytes();
        let value = Value::Apart(put_parts(&self.log, bytes, nonce).await?);
        self.laid.push((Arc::clone(bytes), value.clone()));
        Ok(value)
    }
}

/// Whether a decision looked at the key.
fn is_assumed(assumed: &Assumed, key: &Key) -> bool {
    let looked_at =
        || assumed.spans.iter().any(|(span, found)| span.told(found.until.as_ref()).contains(key));
    assumed.rows.contains_key(key) || looked_at()
}

impl Scribe for Pen {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn forgot(&mut self) {
        self.known.clear();
    }

    async fn look(&mut self, commit: &Commit) -> Result<Ended, StoreError> {
        if let Some(ended) = self.check(&commit.assumed).await? {
            return Ok(ended);
        }
        // Right if nothing was written meanwhile.
        self.log.read_on().await?;
        let is_changed = self.catch_up(&commit.assumed);
        Ok(if is_changed { Ended::Stale(Vec::new()) } else { Ended::Done })
    }

    /// A commit that may still be on its way has its slot taken first: then it is known how it ended.
    async fn write(&mut self, commit: &Commit, turn: Turn) -> Result<Ended, Failed> {
        if turn.follows_open {
            let nothing = Commit {
                assumed: Assumed::default(),
                writes: BTreeMap::new(),
                stamp: fastrand::u64(..).to_be_bytes(),
            };
            self.put(&nothing).await?;
            return Ok(BEHIND);
        }
        if let Some(ended) = self.check(&commit.assumed).await.map_err(Failed::sure)? {
            return Ok(ended);
        }
        self.put(commit).await
    }
}
