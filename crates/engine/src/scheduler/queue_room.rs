//! Whether a worker may queue one more solve. Limits places and bytes of pictures, so that one worker cannot fill the queue of
//! all. Called by pipeline/admit.rs before the store decides; the driver reports here what it has leased.

use std::collections::BTreeMap;

use domain::{
    id::{SolveId, WorkerName},
    time::Timestamp,
};
use parking_lot::{Mutex, RwLock};

use super::{Scheduler, fair_queue::LaneName};

/// The most solves of each worker that wait for a slot, on all gateways together; a reload replaces them.
pub(crate) type QueueLimits = RwLock<BTreeMap<WorkerName, usize>>;

/// Solves and the bytes of their pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) solves: usize,
    pub(crate) bytes: usize,
}

/// Claims between their admission and the queue. The fair queue does not show them yet, and thousands may be on their way.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<ArrivalList>);

#[derive(Debug, Default)]
struct ArrivalList {
    next: u64,
    reserved: BTreeMap<u64, Arrival>,
    /// Opened in the store, and not leased by this process.
    opened: BTreeMap<SolveId, (u64, Arrival)>,
}

#[derive(Clone, Debug)]
struct Arrival {
    worker: WorkerName,
    bytes: usize,
    at: Timestamp,
}

/// A place in the queue for a claim that the store has not decided yet. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    arrivals: &'a Arrivals,
    number: u64,
}

/// Why a worker may not queue one more solve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueFull {
    /// The worker's own limit.
    #[error(
        "{waiting} solves of this worker wait for a slot; its `queue` allows {limit} on this gateway"
    )]
    Worker { waiting: usize, limit: usize },
    /// The worker's share of what is left.
    #[error(
        "{waiting} solves of this worker wait for a slot, and only {free} places are left for all workers; \
         a worker may not have more than are left"
    )]
    Share { waiting: usize, free: usize },
    #[error("{0} solves are already waiting for a slot")]
    All(usize),
    /// The same for the bytes of pictures.
    #[error(
        "the waiting pictures of this worker have {waiting} bytes and this one {more}, and only {free} bytes are left \
         for all workers; a worker may not have more than are left"
    )]
    Bytes { waiting: usize, more: usize, free: usize },
}

/// A claim that was opened counts at most this long, in case that this process leases nothing at all.
const ARRIVAL_MILLIS: u64 = 15_000;

impl Scheduler {
    /// Reserves a place for a solve with so many bytes of pictures.
    pub(crate) fn reserve(
        &self,
        (most, most_bytes): (usize, usize),
        worker: &WorkerName,
        bytes: usize,
        now: Timestamp,
    ) -> Result<Reservation<'_>, QueueFull> {
        let lane = LaneName::Worker(worker.clone());
        let (own, all) = {
            let queue = self.queue.lock();
            (queue.load(&lane), queue.total_load())
        };
        let limit = self.queue_limits.read().get(worker).copied();
        let limit = limit.map(|limit| limit.div_ceil(self.lease.gateways()).max(1));
        let mut arrivals = self.arrivals.0.lock();
        arrivals.drop_older(now);
        let own = own.plus(arrivals.load(|arrival| arrival.worker == *worker));
        let all = all.plus(arrivals.load(|_| true));
        check(Load { solves: most, bytes: most_bytes }, limit, own, all, bytes)?;
        Ok(arrivals.reserve(&self.arrivals, Arrival { worker: worker.clone(), bytes, at: now }))
    }
}

/// Each worker may have as many places as are still free, so there is always room for a worker that has none. `n` workers
/// that send without end get an equal part each and leave one part free.
fn check(
    most: Load,
    limit: Option<usize>,
    own: Load,
    all: Load,
    bytes: usize,
) -> Result<(), QueueFull> {
    let free = most.solves.saturating_sub(all.solves);
    if free == 0 {
        return Err(QueueFull::All(all.solves));
    }
    let waiting = own.solves;
    if let Some(limit) = limit.filter(|limit| waiting >= *limit) {
        return Err(QueueFull::Worker { waiting, limit });
    }
    if waiting >= free {
        return Err(QueueFull::Share { waiting, free });
    }
    let free = most.bytes.saturating_sub(all.bytes);
    if bytes > 0 && own.bytes + bytes > free {
        return Err(QueueFull::Bytes { waiting: own.bytes, more: bytes, free });
    }
    Ok(())
}

// === impl Load ===

impl Load {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { solves: self.solves + other.solves, bytes: self.bytes + other.bytes }
    }
}

// === impl Arrivals ===

impl Arrivals {
    /// The number of the last arrival so far, for [`Arrivals::forget_up_to`].
    pub(crate) fn mark(&self) -> u64 {
        self.0.lock().next
    }

    /// Whether a claim was opened that the queue does not show yet.
    pub(crate) fn has_opened(&self) -> bool {
        !self.0.lock().opened.is_empty()
    }

    /// This process leased the solve: the queue shows it from now on.
    pub(crate) fn leased(&self, solve: SolveId) {
        self.0.lock().opened.remove(&solve);
    }

    /// Everything that was opened before the mark is leased, by this process or another.
    pub(crate) fn forget_up_to(&self, mark: u64) {
        self.0.lock().opened.retain(|_, (number, _)| *number >= mark);
    }
}

impl ArrivalList {
    fn load(&self, matches: impl Fn(&Arrival) -> bool) -> Load {
        let opened = self.opened.values().map(|(_, arrival)| arrival);
        let all = self.reserved.values().chain(opened).filter(|arrival| matches(arrival));
        all.fold(Load::default(), |sum, arrival| sum.plus(Load { solves: 1, bytes: arrival.bytes }))
    }

    fn drop_older(&mut self, now: Timestamp) {
        let oldest = now.millis().saturating_sub(ARRIVAL_MILLIS);
        self.opened.retain(|_, (_, arrival)| arrival.at.millis() >= oldest);
    }

    fn reserve<'a>(&mut self, arrivals: &'a Arrivals, arrival: Arrival) -> Reservation<'a> {
        let number = self.next;
        self.next += 1;
        self.reserved.insert(number, arrival);
        Reservation { arrivals, number }
    }
}

// === impl Reservation ===

impl Reservation<'_> {
    /// The store opened a solve, which waits until it is leased.
    pub(crate) fn opened(self, solve: SolveId) {
        let mut list = self.arrivals.0.lock();
        if let Some(arrival) = list.reserved.remove(&self.number) {
            // A new number: a lease call that started before the store opened the solve may have missed it.
            let number = list.next;
            list.next += 1;
            list.opened.insert(solve, (number, arrival));
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.arrivals.0.lock().reserved.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Load = Load { solves: 100, bytes: 1000 };

    fn load(solves: usize, bytes: usize) -> Load {
        Load { solves, bytes }
    }

    #[test]
    fn a_worker_stops_at_its_own_limit_and_the_others_go_on() {
        let full = check(MOST, Some(10), load(10, 0), load(10, 0), 0);
        assert_eq!(full, Err(QueueFull::Worker { waiting: 10, limit: 10 }));
        assert_eq!(check(MOST, Some(10), load(0, 0), load(10, 0), 0), Ok(()));
    }

    #[test]
    fn workers_that_send_without_end_leave_room_for_one_that_has_nothing() {
        for workers in 1..20 {
            let mut own = vec![0; workers];
            let mut refused = 0;
            while refused < workers {
                refused = 0;
                for n in 0..workers {
                    let all = load(own.iter().sum(), 0);
                    match check(MOST, None, load(own[n], 0), all, 0) {
                        Ok(()) => own[n] += 1,
                        Err(_) => refused += 1,
                    }
                }
            }
            let all: usize = own.iter().sum();
            assert!(check(MOST, None, load(0, 0), load(all, 0), 0).is_ok(), "{own:?}");
            let (least, most) = (own.iter().min().unwrap(), own.iter().max().unwrap());
            assert!(most - least <= 1, "{own:?}");
        }
        assert_eq!(check(MOST, None, load(0, 0), load(100, 0), 0), Err(QueueFull::All(100)));
    }

    #[test]
    fn bytes_are_shared_like_places_and_only_pictures_need_them() {
        assert!(check(MOST, None, load(1, 400), load(1, 400), 100).is_ok());
        let full = check(MOST, None, load(1, 500), load(1, 500), 100);
        assert_eq!(full, Err(QueueFull::Bytes { waiting: 500, more: 100, free: 500 }));
        assert!(check(MOST, None, load(1, 500), load(1, 500), 0).is_ok());
        assert!(check(MOST, None, load(0, 0), load(1, 500), 100).is_ok());
    }

    #[test]
    fn an_arrival_counts_until_it_is_leased_somewhere() {
        let arrivals = Arrivals::default();
        let arrival = Arrival {
            worker: WorkerName::new("a").unwrap(),
            bytes: 7,
            at: Timestamp::from_millis(1),
        };
        let reserve = || arrivals.0.lock().reserve(&arrivals, arrival.clone());
        let count = || arrivals.0.lock().load(|_| true);
        let (one, two, three) = (reserve(), reserve(), reserve());
        assert_eq!(count(), load(3, 21));
        drop(one);
        two.opened(SolveId::from_number(2));
        let mark = arrivals.mark();
        three.opened(SolveId::from_number(3));
        assert_eq!(count(), load(2, 14));
        arrivals.forget_up_to(mark);
        assert_eq!(count(), load(1, 7), "three may have been opened after the lease call");
        arrivals.leased(SolveId::from_number(3));
        assert_eq!(count(), load(0, 0));
    }
}
