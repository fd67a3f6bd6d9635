//! Bounds the memory that the request bodies of one worker take until they are parsed: before that, neither its rate nor its
//! places in the queue count them, and it may have a thousand connections.

use std::collections::HashMap;

use domain::id::WorkerName;
use parking_lot::Mutex;

use crate::Doors;

/// The bytes of each worker.
#[derive(Debug, Default)]
pub(crate) struct BodiesInFlight(Mutex<HashMap<WorkerName, usize>>);

/// The bytes of one body. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct HeldBody {
    doors: Doors,
    worker: WorkerName,
    bytes: usize,
}

/// The bodies of the worker have as many bytes as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyBytes;

// === impl BodiesInFlight ===

impl BodiesInFlight {
    fn take(&self, worker: &WorkerName, bytes: usize, most: usize) -> Result<(), TooManyBytes> {
        let mut held = self.0.lock();
        let all = held.get(worker).copied().unwrap_or(0) + bytes;
        if all > most {
            return Err(TooManyBytes);
        }
        if all > 0 {
            held.insert(worker.clone(), all);
        }
        Ok(())
    }

    fn give_back(&self, worker: &WorkerName, bytes: usize) {
        let mut held = self.0.lock();
        if let Some(all) = held.get_mut(worker) {
            *all -= bytes;
            if *all == 0 {
                held.remove(worker);
            }
        }
    }
}

// === impl HeldBody ===

impl HeldBody {
    pub(crate) fn begin(doors: &Doors, worker: WorkerName) -> Self {
        Self { doors: doors.clone(), worker, bytes: 0 }
    }

    /// Counts the bytes that have come so far.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), TooManyBytes> {
        let more = bytes.saturating_sub(self.bytes);
        let most = self.doors.limits().worker_bytes as usize;
        self.doors.bodies_in_flight().take(&self.worker, more, most)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.doors.bodies_in_flight().give_back(&self.worker, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_worker_are_bounded_and_come_back() {
        let bodies = BodiesInFlight::default();
        let worker = |name| WorkerName::new(name).unwrap();
        assert!(bodies.take(&worker("one"), 60, 100).is_ok());
        assert!(bodies.take(&worker("one"), 41, 100).is_err());
        assert!(bodies.take(&worker("two"), 100, 100).is_ok(), "another worker has its own");
        bodies.give_back(&worker("one"), 60);
        assert!(bodies.take(&worker("one"), 100, 100).is_ok());
        bodies.give_back(&worker("one"), 100);
        bodies.give_back(&worker("two"), 100);
        assert!(bodies.0.lock().is_empty(), "none is kept for nothing");
    }
}
