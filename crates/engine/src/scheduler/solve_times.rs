//! How long recent solves took, by kind.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use domain::challenge::Kind;
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct SolveTimes(Mutex<BTreeMap<Kind, VecDeque<Duration>>>);

const REMEMBERED: usize = 64;
/// Fewer solves than this are no proof that nothing is faster.
const ENOUGH: usize = 20;
/// Callers may invent kinds, so only this many are remembered.
const MAX_KINDS: usize = 256;
/// Assumed for a kind that was never solved.
const UNKNOWN: Duration = Duration::from_secs(5);

impl SolveTimes {
    pub(crate) fn record(&self, kind: &Kind, length: Duration) {
        let mut kinds = self.0.lock();
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(kind) {
            return;
        }
        let recent = kinds.entry(kind.clone()).or_default();
        recent.push_back(length);
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }

    /// The mean of recent solves.
    pub(crate) fn usual(&self, kind: &Kind) -> Duration {
        let kinds = self.0.lock();
        let Some(recent) = kinds.get(kind).filter(|recent| !recent.is_empty()) else {
            return UNKNOWN;
        };
        recent.iter().sum::<Duration>() / u32::try_from(recent.len()).unwrap_or(u32::MAX)
    }

    /// The fastest recent solve of the kind, once there were enough of them.
    pub(crate) fn fastest(&self, kind: &Kind) -> Option<Duration> {
        let kinds = self.0.lock();
        kinds.get(kind).filter(|recent| recent.len() >= ENOUGH)?.iter().min().copied()
    }

    /// The fastest recent solve of any kind.
    pub(crate) fn fastest_of_all(&self) -> Duration {
        self.0.lock().values().flatten().min().copied().unwrap_or_default()
    }
}
