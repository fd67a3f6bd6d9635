//! What the writer task has committed, for benchmarks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::adapter::Counters;

#[derive(Debug, Default)]
pub(crate) struct WriteCounters {
    decisions: AtomicU64,
    commits: AtomicU64,
    conflicts: AtomicU64,
    renumbered: AtomicU64,
}

// === impl WriteCounters ===

impl WriteCounters {
    pub(super) fn committed(&self, decisions: usize) {
        self.commits.fetch_add(1, Relaxed);
        self.decisions.fetch_add(u64::try_from(decisions).unwrap_or(0), Relaxed);
    }

    pub(super) fn conflicted(&self) {
        self.conflicts.fetch_add(1, Relaxed);
    }

    pub(super) fn renumbered(&self) {
        self.renumbered.fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> Counters {
        Counters {
            decisions: self.decisions.load(Relaxed),
            commits: self.commits.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            renumbered: self.renumbered.load(Relaxed),
            ..Counters::default()
        }
    }
}
