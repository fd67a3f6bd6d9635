//! Dead letters brought back to work, one or many, at a rate people choose. Each comes in like a claim, so its page has to
//! be declared now, whatever it was when it died.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    claim::{Admission, Allowance},
    dead_letter::{Closing, DeadLetter},
    id::{ClaimId, SolveId, WorkerName},
    ledger::Event,
    ports::{Cursor, DeadLetterFilter, Note, Revival, Revive, StoreError},
    retry::own,
    site::{PageUrl, SiteRefusal},
    solve::{AmbiguousPolicy, Policy},
    time::Timestamp,
};

use crate::{Engine, Inner, Slots};

/// Which letters, by whom, how fast.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// Which.
    pub which: Which,
    /// By whom: it is in the audit trail.
    pub by: WorkerName,
    /// Letters a second.
    pub rate: u32,
    /// Only say what would be done.
    pub dry_run: bool,
    /// What the workers there are may open a day; a letter of others does not come back.
    pub allowances: BTreeMap<WorkerName, Allowance>,
}

/// Which letters.
#[derive(Clone, Debug)]
pub enum Which {
    /// These.
    Ids(Vec<SolveId>),
    /// Those that match, newest first, from the filter's cursor on.
    Matching(DeadLetterFilter),
}

/// What was done in one go.
#[derive(Clone, Debug, Default)]
pub struct BulkDone {
    /// Letter by letter.
    pub items: Vec<(SolveId, Revived)>,
    /// Where to go on: the time was up before the list.
    pub next: Option<Cursor>,
}

/// What became of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revived {
    /// A new solve was opened for it.
    Opened(ClaimId),
    /// It waits for a solve that is under way.
    Joined(ClaimId),
    /// There was a token in stock.
    Stocked(ClaimId),
    /// An equal one came back before it: this is that claim.
    Replayed(ClaimId),
    /// It would be brought back.
    Would,
    /// It was closed already, in this way.
    Closed(Closing),
    /// There is no such letter.
    Unknown,
    /// It may not come back, and why.
    Refused(String),
}

/// One call works for at most so long.
const WORK_FOR: Duration = Duration::from_secs(20);
/// Letters read at once.
const LOT: usize = 200;
/// Nobody waits at a revived claim: it may wait its turn for a day.
const REVIVED_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// While the queue is half full nothing more is brought back.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Engine {
    /// Brings letters back until the list or the time is at its end.
    pub async fn revive(&self, bulk: &Bulk) -> Result<BulkDone, StoreError> {
        let mut done = BulkDone::default();
        let until = self.0.now().plus(WORK_FOR);
        match &bulk.which {
            Which::Ids(ids) => {
                for id in ids {
                    let letter = self.records().dead_letter(*id).await?;
                    let revived = match letter {
                        Some(letter) => self.0.revive_one(bulk, &letter).await?,
                        None => Revived::Unknown,
                    };
                    done.items.push((*id, revived));
                }
            }
            Which::Matching(filter) => self.revive_matching(bulk, filter, until, &mut done).await?,
        }
        Ok(done)
    }

    async fn revive_matching(
        &self,
        bulk: &Bulk,
        filter: &DeadLetterFilter,
        until: Timestamp,
        done: &mut BulkDone,
    ) -> Result<(), StoreError> {
        let mut filter = DeadLetterFilter { limit: LOT, closed: false, ..filter.clone() };
        loop {
            let page = self.records().dead_letters(filter.clone()).await?;
            for letter in &page.items {
                let has_room = bulk.dry_run || self.0.has_room(until).await;
                if !done.items.is_empty() && (!has_room || self.0.now() >= until) {
                    done.next = filter.from;
                    return Ok(());
                }
                let revived = self.0.revive_one(bulk, letter).await?;
                done.items.push((letter.id, revived));
                filter.from = Some(Cursor { at: letter.died_at, id: letter.id.number() });
            }
            let Some(next) = page.next else { return Ok(()) };
            filter.from = Some(next);
        }
    }

    /// Throws letters away, all that match from the filter's cursor on; the result is how many and where to go on.
    pub async fn purge(&self, bulk: &Bulk) -> Result<(usize, Option<Cursor>), StoreError> {
        let until = self.0.now().plus(WORK_FOR);
        let mut purged = 0;
        match &bulk.which {
            Which::Ids(ids) => {
                for id in ids {
                    purged += usize::from(self.0.purge_one(bulk, *id).await?);
                }
                Ok((purged, None))
            }
            Which::Matching(filter) => {
                let mut filter = DeadLetterFilter { limit: LOT, ..filter.clone() };
                loop {
                    let page = self.records().dead_letters(filter.clone()).await?;
                    for letter in &page.items {
                        purged += usize::from(self.0.purge_one(bulk, letter.id).await?);
                    }
                    let Some(next) = page.next else { return Ok((purged, None)) };
                    filter.from = Some(next);
                    if self.0.now() >= until {
                        return Ok((purged, Some(next)));
                    }
                }
            }
        }
    }
}

impl Inner {
    /// Whether the queue has room for what is brought back, beside those who wait now. Waits for it until then.
    async fn has_room(&self, until: Timestamp) -> bool {
        // Without slots nothing is worked on here: another process has the queue.
        while self.config.slots != Slots::Fixed(0)
            && self.health.queued() >= self.config.most_queued / 2
        {
            if self.now() >= until {
                return false;
            }
            self.ports.clock.sleep_until(self.now().plus(LOOK_AGAIN)).await;
        }
        true
    }

    async fn revive_one(&self, bulk: &Bulk, letter: &DeadLetter) -> Result<Revived, StoreError> {
        if let Some(closed) = &letter.closed {
            return Ok(Revived::Closed(closed.how));
        }
        let (basis, ambiguous) = match self.ground_of(letter) {
            Ok(ground) => ground,
            Err(refusal) => return self.refuse_letter(bulk, letter, &refusal).await,
        };
        if bulk.dry_run {
            let known = bulk.allowances.contains_key(&letter.worker);
            return Ok(if known { Revived::Would } else { Revived::disowned() });
        }
        let revival = loop {
            let chance = &*self.ports.chance;
            let like = letter.id.number();
            let ask = Revive {
                letter: letter.id,
                by: bulk.by.clone(),
                claims: letter.claims.iter().map(|_| ClaimId::draw_beside(chance, like)).collect(),
                solve: SolveId::draw_beside(chance, like),
                basis: Arc::clone(&basis),
                deadline: self.now().plus(REVIVED_DEADLINE),
                price: self.config.prices.get(&letter.kind).copied(),
                allowances: bulk.allowances.clone(),
                policy: Policy { ambiguous, ambiguity_budget: self.config.ambiguity_budget },
            };
            match self.ports.store.revive(ask, self.now()).await? {
                Revival::Back(Admission::NameTaken) => {}
                revival @ (Revival::Back(_)
                | Revival::Disowned
                | Revival::Closed(_)
                | Revival::Unknown) => break revival,
            }
        };
        self.wake.notify_one();
        // The next one waits its time, also when it comes with the next call.
        let gap = Duration::from_secs(1) / bulk.rate.max(1);
        self.ports.clock.sleep_until(self.now().plus(gap)).await;
        Ok(Revived::of(revival))
    }

    /// On what ground the letter's page may be solved for, now.
    fn ground_of(&self, letter: &DeadLetter) -> Result<(Arc<str>, AmbiguousPolicy), SiteRefusal> {
        let sites = Arc::clone(&self.sites.read().expect("no holder of this lock can panic"));
        let Some(page) = &letter.pageurl else {
            let basis = Arc::clone(sites.check_images()?);
            return Ok((basis, AmbiguousPolicy::default()));
        };
        let page = PageUrl::parse(page).map_err(|_| SiteRefusal::NotDeclared(page.clone()))?;
        let site = sites.check(&page, self.now())?;
        Ok((Arc::clone(&site.basis), site.ambiguous))
    }

    async fn refuse_letter(
        &self,
        bulk: &Bulk,
        letter: &DeadLetter,
        refusal: &SiteRefusal,
    ) -> Result<Revived, StoreError> {
        if !bulk.dry_run {
            let event = Event::Refused {
                code: own::SITE_NOT_DECLARED.into(),
                pageurl: letter.pageurl.clone(),
            };
            let note = Note {
                claim: letter.claims.first().copied(),
                worker: letter.worker.clone(),
                project: letter.project.clone(),
                kind: Some(letter.kind.clone()),
                event,
            };
            self.ports.store.note(note, self.now()).await?;
        }
        Ok(Revived::Refused(refusal.to_string()))
    }

    async fn purge_one(&self, bulk: &Bulk, id: SolveId) -> Result<bool, StoreError> {
        if bulk.dry_run {
            return Ok(self.ports.records.dead_letter(id).await?.is_some());
        }
        self.ports.store.purge(id, bulk.by.clone(), self.now()).await
    }
}

// === impl Revived ===

impl Revived {
    fn disowned() -> Self {
        Self::Refused("its worker is not configured any more; purge it, or add the worker".into())
    }

    fn of(revival: Revival) -> Self {
        match revival {
            Revival::Back(Admission::Opened(claim)) => Self::Opened(claim.id),
            Revival::Back(Admission::Joined(claim)) => Self::Joined(claim.id),
            Revival::Back(Admission::Stocked(claim)) => Self::Stocked(claim.id),
            Revival::Back(Admission::Replayed(claim)) => Self::Replayed(claim.id),
            Revival::Back(Admission::OverBudget { limit, until }) => Self::Refused(format!(
                "the budget `{limit}` of its worker is used up until {until}; try again then"
            )),
            Revival::Back(Admission::Mismatch(_) | Admission::TooLate | Admission::NameTaken) => {
                Self::Refused("its key stands for something else by now".into())
            }
            Revival::Disowned => Self::disowned(),
            Revival::Closed(closed) => Self::Closed(closed.how),
            Revival::Unknown => Self::Unknown,
        }
    }
}
