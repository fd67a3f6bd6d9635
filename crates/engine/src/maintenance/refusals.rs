//! Writes refused requests into the ledger, counted per minute: who was refused what, from where. The first refusal of a sort
//! in a minute is written at once, the others as one entry when the minute ends. So a flood adds a bounded number of rows, and
//! nothing is left out. A crash loses the counts of at most a minute.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use domain::{
    actor::network_of,
    challenge::Kind,
    id::{Project, WorkerName},
    ledger::Event,
    ports::Note,
    retry::Code,
    time::Timestamp,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Engine, Shared};

/// A refused request. A caller without a valid key has no worker.
#[derive(Clone, Debug)]
pub struct RefusedRequest {
    pub worker: Option<WorkerName>,
    pub project: Option<Project>,
    pub kind: Option<Kind>,
    /// Why it was refused.
    pub code: Code,
    pub address: Option<IpAddr>,
    /// The page of its challenge.
    pub pageurl: Option<String>,
}

/// The refusals of this minute.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounter {
    minute: Mutex<Minute>,
    /// There is something to write at once, or a minute has begun.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Minute {
    /// When it ends; `None` while nothing was refused.
    ends_at: Option<Timestamp>,
    counts: BTreeMap<Sort, Counted>,
    /// The first refusals, to be written at once.
    first: Vec<Note>,
}

/// What refusals have in common that are counted together. Only configured names and a bounded number of others become rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sort {
    worker: Option<WorkerName>,
    project: Option<Project>,
    kind: Option<Kind>,
    code: Code,
    network: Option<IpAddr>,
}

/// The refusals of a sort besides the first.
#[derive(Clone, Copy, Debug)]
struct Counted {
    count: u64,
    since: Timestamp,
}

const MINUTE: Duration = Duration::from_secs(60);
/// How many sorts of refusals of workers are counted separately in a minute; the rest is counted as [`OTHER`].
const MAX_OF_WORKERS: usize = 100;
/// The same for callers without a valid key, who cannot take the places of workers.
const MAX_OF_STRANGERS: usize = 50;
/// The code of refusals that are not told apart.
const OTHER: &str = "other";

impl Engine {
    /// Counts a refused request for the audit trail. It never waits for the store.
    pub fn count_refusal(&self, refused: RefusedRequest) {
        count(&self.0, refused);
    }
}

pub(crate) fn count(shared: &Shared, refused: RefusedRequest) {
    shared.maintenance.refusals.count(refused, shared.now());
}

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let counter = &shared.maintenance.refusals;
        let wait = counter.minute.lock().ends_at.map_or(MINUTE, |end| end.since(shared.now()));
        let goes_on = tokio::select! {
            biased;
            () = counter.changed.notified() => true,
            goes_on = shared.pause(wait) => goes_on,
        };
        write(&shared, !goes_on).await;
        if !goes_on {
            return;
        }
    }
}

/// Writes the first refusals, and the counts when the minute is over or the gateway stops.
async fn write(shared: &Shared, is_last: bool) {
    let notes = shared.maintenance.refusals.take(shared.now(), is_last);
    for note in notes {
        if let Err(error) = shared.ports.store.note(note.clone(), shared.now()).await {
            tracing::warn!(%error, "failed to write refused requests to the ledger");
            if !is_last {
                shared.maintenance.refusals.put_back(&note, shared.now());
            }
        }
    }
}

// === impl RefusalCounter ===

impl RefusalCounter {
    fn count(&self, refused: RefusedRequest, now: Timestamp) {
        let sort = Sort::of(&refused);
        let mut minute = self.minute.lock();
        if minute.add(sort, 1, now) {
            minute.first.push(first_note(refused, now));
        }
        drop(minute);
        self.changed.notify_one();
    }

    /// What is to be written now.
    fn take(&self, now: Timestamp, is_last: bool) -> Vec<Note> {
        let mut minute = self.minute.lock();
        let mut notes = std::mem::take(&mut minute.first);
        if is_last || minute.ends_at.is_some_and(|end| end <= now) {
            let counts = std::mem::take(&mut *minute).counts.into_iter();
            notes.extend(counts.filter(|(_, counted)| counted.count > 0).map(sum_note));
        }
        notes
    }

    /// Counts what could not be written with the next minute.
    fn put_back(&self, note: &Note, now: Timestamp) {
        let Event::Refusals { code, address, count, .. } = &note.event else { return };
        let named = |name: &WorkerName| (!name.is_nobody()).then(|| name.clone());
        let sort = Sort {
            worker: named(&note.worker),
            project: named(&note.worker).map(|_| note.project.clone()),
            kind: note.kind.as_ref().map(Kind::in_totals),
            code: code.clone(),
            network: address.map(network_of),
        };
        let mut minute = self.minute.lock();
        if minute.add(sort.clone(), *count, now)
            && let Some(counted) = minute.counts.get_mut(&sort)
        {
            // It is not written again as the first one.
            counted.count = *count;
        }
    }
}

impl Minute {
    /// Counts refusals; `true` for the first of their sort.
    fn add(&mut self, sort: Sort, more: u64, now: Timestamp) -> bool {
        self.ends_at.get_or_insert(now.plus(MINUTE));
        if let Some(counted) = self.counts.get_mut(&sort) {
            counted.count = counted.count.saturating_add(more);
            return false;
        }
        let is_stranger = sort.worker.is_none();
        let most = if is_stranger { MAX_OF_STRANGERS } else { MAX_OF_WORKERS };
        let known =
            self.counts.keys().filter(|known| known.worker.is_none() == is_stranger).count();
        if known >= most {
            let other = Sort::other();
            let none = Counted { count: 0, since: now };
            let counted = self.counts.entry(other).or_insert(none);
            counted.count = counted.count.saturating_add(more);
            return false;
        }
        self.counts.insert(sort, Counted { count: more - 1, since: now });
        true
    }
}

impl Sort {
    fn of(refused: &RefusedRequest) -> Self {
        Self {
            worker: refused.worker.clone(),
            project: refused.project.clone(),
            kind: refused.kind.as_ref().map(Kind::in_totals),
            code: refused.code.clone(),
            network: refused.address.map(network_of),
        }
    }

    fn other() -> Self {
        Self { worker: None, project: None, kind: None, code: OTHER.into(), network: None }
    }
}

fn first_note(refused: RefusedRequest, now: Timestamp) -> Note {
    let RefusedRequest { worker, project, kind, code, address, pageurl } = refused;
    note(worker, project, kind, Event::Refusals { code, address, pageurl, count: 1, since: now })
}

fn sum_note((sort, Counted { count, since }): (Sort, Counted)) -> Note {
    let Sort { worker, project, kind, code, network: address } = sort;
    note(worker, project, kind, Event::Refusals { code, address, pageurl: None, count, since })
}

fn note(
    worker: Option<WorkerName>,
    project: Option<Project>,
    kind: Option<Kind>,
    event: Event,
) -> Note {
    Note {
        claim: None,
        worker: worker.unwrap_or_else(WorkerName::nobody),
        project: project.unwrap_or_else(Project::nobody),
        kind,
        event,
        by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn refused(worker: Option<&str>, code: &str, address: [u8; 4]) -> RefusedRequest {
        RefusedRequest {
            worker: worker.map(|name| WorkerName::new(name).unwrap()),
            project: worker.map(|name| Project::new(name).unwrap()),
            kind: worker.map(|_| Kind::Turnstile),
            code: code.into(),
            address: Some(address.into()),
            pageurl: None,
        }
    }

    fn counts(notes: &[Note]) -> Vec<u64> {
        let count = |note: &Note| {
            let Event::Refusals { count, .. } = note.event else { panic!("{:?}", note.event) };
            count
        };
        notes.iter().map(count).collect()
    }

    #[test]
    fn the_first_is_written_at_once_and_the_others_when_the_minute_ends() {
        let counter = RefusalCounter::default();
        for _ in 0..1000 {
            counter.count(refused(Some("ann"), "busy", [192, 0, 2, 1]), at(0));
        }
        assert_eq!(counts(&counter.take(at(1), false)), [1]);
        assert!(counts(&counter.take(at(59), false)).is_empty());
        assert_eq!(counts(&counter.take(at(60), false)), [999]);
        assert!(counts(&counter.take(at(120), false)).is_empty());
        counter.count(refused(Some("ann"), "busy", [192, 0, 2, 1]), at(130));
        assert_eq!(counts(&counter.take(at(130), false)), [1], "a new minute");
    }

    #[test]
    fn a_gateway_that_stops_writes_what_it_counted() {
        let counter = RefusalCounter::default();
        for _ in 0..5 {
            counter.count(refused(None, "unauthorized", [192, 0, 2, 1]), at(0));
        }
        assert_eq!(counts(&counter.take(at(1), true)), [1, 4]);
    }

    #[test]
    fn a_flood_from_many_addresses_is_a_bounded_number_of_entries_and_leaves_room_for_workers() {
        let counter = RefusalCounter::default();
        for n in 0..10_000_u32 {
            counter.count(refused(None, "unauthorized", n.to_be_bytes()), at(0));
        }
        counter.count(refused(Some("ann"), "busy", [192, 0, 2, 1]), at(0));
        for n in 0..10_000_u32 {
            counter.count(refused(Some("bob"), &format!("code-{n}"), [192, 0, 2, 1]), at(0));
        }
        let first = counter.take(at(0), false);
        let named: Vec<_> = first.iter().filter(|note| note.worker.as_str() == "ann").collect();
        assert_eq!(named.len(), 1);
        assert!(first.len() <= MAX_OF_STRANGERS + MAX_OF_WORKERS);
        let rest = counter.take(at(60), false);
        assert_eq!(rest.len(), 1, "all others together");
        let all: u64 = counts(&first).iter().chain(&counts(&rest)).sum();
        assert_eq!(all, 20_001, "every refusal is counted");
    }

    #[test]
    fn addresses_of_one_network_are_counted_together() {
        let counter = RefusalCounter::default();
        for host in 0..100_u16 {
            let address = Some(IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, host]));
            let refused = refused(None, "unauthorized", [0; 4]);
            counter.count(RefusedRequest { address, ..refused }, at(0));
        }
        assert_eq!(counts(&counter.take(at(60), false)), [1, 99]);
    }

    #[test]
    fn what_could_not_be_written_is_counted_again() {
        let counter = RefusalCounter::default();
        for _ in 0..3 {
            counter.count(refused(Some("ann"), "busy", [192, 0, 2, 1]), at(0));
        }
        let lost = counter.take(at(60), false);
        assert_eq!(counts(&lost), [1, 2]);
        for note in &lost {
            counter.put_back(note, at(60));
        }
        assert_eq!(counts(&counter.take(at(120), false)), [3]);
    }
}
