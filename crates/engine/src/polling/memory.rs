//! What solves took, family by family, as far as polls can tell; bounded, and small enough to be kept over a restart.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use super::{
    Family, Seen, Timing,
    cells::{CELLS, LAST, as_float, logs, nearest},
    fit::{Fit, Interval},
};

/// What was learned of all families.
#[derive(Debug)]
pub(super) struct Memory {
    families: Mutex<BTreeMap<Family, Learned>>,
    /// For families nothing was seen of.
    unknown: Learned,
}

/// What was learned of one family.
#[derive(Debug)]
pub(super) struct Learned {
    /// Tasks seen, ever.
    seen: u64,
    /// What the last of them have shown.
    lately: VecDeque<Interval>,
    fit: Fit,
    /// Tasks seen since the fit was made.
    unfitted: usize,
    /// Counts the fits, so that others know when theirs is old.
    version: u64,
}

const FAMILIES: usize = 256;
/// Older tasks are forgotten. Fewer would be learned less well, more would hold on to a provider's old speed.
const LATELY: usize = 256;
/// The fit is made again after so many new tasks, relative to those it is made from.
const REFIT: usize = 16;
const FORMAT: u8 = 1;
const PROXIED: &str = "+proxied";

// === impl Memory ===

impl Default for Memory {
    fn default() -> Self {
        Self { families: Mutex::default(), unknown: Learned::new() }
    }
}

impl Memory {
    pub(super) fn learn(&self, family: &Family, seen: Seen) {
        let Some(interval) = interval(seen) else { return };
        let mut families = self.families();
        if !families.contains_key(family) && families.len() >= FAMILIES {
            return;
        }
        families.entry(family.clone()).or_insert_with(Learned::new).add(interval);
    }

    pub(super) fn read<T>(&self, family: &Family, read: impl FnOnce(&Learned) -> T) -> T {
        let families = self.families();
        read(families.get(family).unwrap_or(&self.unknown))
    }

    pub(super) fn timing(&self, family: &Family) -> Timing {
        self.read(family, |learned| {
            let usual = &learned.fit.usual;
            let quantile = |part| Duration::from_secs_f64(usual.quantile(part));
            Timing {
                mean: Duration::from_secs_f64(usual.mean()),
                q01: quantile(0.01),
                q99: quantile(0.99),
                seen: learned.seen,
            }
        })
    }

    pub(super) fn save(&self) -> Vec<(String, Vec<u8>)> {
        self.families().iter().map(|(family, learned)| (name(family), learned.to_bytes())).collect()
    }

    pub(super) fn load(&self, name: &str, bytes: &[u8]) {
        let Some(family) = family(name) else { return };
        let Some(mut learned) = Learned::from_bytes(bytes) else { return };
        let mut families = self.families();
        match families.get(&family) {
            Some(known) if known.seen >= learned.seen => return,
            Some(known) => learned.version += known.version,
            None if families.len() >= FAMILIES => return,
            None => {}
        }
        families.insert(family, learned);
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<Family, Learned>> {
        self.families.lock().expect("no holder of this lock can panic")
    }
}

fn interval(seen: Seen) -> Option<Interval> {
    let (from, to) = match seen {
        Seen::Ready { after, by } if by < after => return None,
        Seen::Ready { after, by } => {
            let from = nearest(after).min(LAST);
            (from, nearest(by).max(from + 1))
        }
        Seen::NotWithin(age) => (nearest(age), CELLS),
    };
    Some((u16::try_from(from).ok()?, u16::try_from(to).ok()?))
}

fn name(family: &Family) -> String {
    format!("{}{}", family.kind.name(), if family.proxied { PROXIED } else { "" })
}

fn family(name: &str) -> Option<Family> {
    let (kind, proxied) = match name.strip_suffix(PROXIED) {
        Some(kind) => (kind, true),
        None => (name, false),
    };
    Some(Family { kind: kind.parse().ok()?, proxied })
}

// === impl Learned ===

impl Learned {
    fn new() -> Self {
        Self { seen: 0, lately: VecDeque::new(), fit: Fit::prior(), unfitted: 0, version: 0 }
    }

    pub(super) fn fit(&self) -> &Fit {
        &self.fit
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    fn add(&mut self, interval: Interval) {
        self.seen = self.seen.saturating_add(1);
        self.lately.push_back(interval);
        if self.lately.len() > LATELY {
            self.lately.pop_front();
        }
        self.unfitted += 1;
        if self.unfitted * REFIT >= self.lately.len() {
            self.forget_the_old_speed();
            self.refit();
        }
    }

    fn refit(&mut self) {
        self.unfitted = 0;
        self.version += 1;
        self.fit = Fit::of(self.lately.make_contiguous(), &self.fit);
    }

    /// Drops what was seen before the provider became slower or faster.
    fn forget_the_old_speed(&mut self) {
        let lately: Vec<f64> = self.lately.iter().map(middle).collect();
        if let Some(keep) = change(&lately) {
            self.lately.drain(..self.lately.len() - keep);
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.seen.to_le_bytes());
        for (from, to) in &self.lately {
            bytes.extend(from.to_le_bytes());
            bytes.extend(to.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, bytes) = bytes.split_first()? else { return None };
        let (seen, intervals) = bytes.split_first_chunk()?;
        let (intervals, rest) = intervals.as_chunks::<4>();
        let read =
            |[a, b, c, d]: &[u8; 4]| (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
        let lately: VecDeque<Interval> = intervals.iter().map(read).collect();
        let is_valid = |(from, to): &Interval| from < to && usize::from(*to) <= CELLS;
        if !rest.is_empty() || lately.len() > LATELY || !lately.iter().all(is_valid) {
            return None;
        }
        let mut learned = Self { seen: u64::from_le_bytes(*seen), lately, ..Self::new() };
        learned.refit();
        Some(learned)
    }
}

/// About where in the interval it was, in logarithms. What was there at the first poll was seldom much earlier.
fn middle((from, to): &Interval) -> f64 {
    let last = logs()[usize::from(*to) - 1];
    let first = logs()[usize::from(*from)].max(last - 0.7);
    f64::midpoint(first, last)
}

/// So many of the last values differ from those before by more than chance allows.
const STEPS: [usize; 8] = [8, 12, 18, 27, 40, 60, 90, 128];
const OLD: usize = 20;
const SURE: f64 = 4.2;

fn change(values: &[f64]) -> Option<usize> {
    let statistic = |keep: usize| {
        let (old, new) = values.split_at(values.len() - keep);
        let ((old_mean, old_spread), (new_mean, new_spread)) = (moments(old), moments(new));
        let variance = f64::midpoint(old_spread, old_spread.max(new_spread)).max(0.01);
        let error = variance * (1.0 / as_float(old.len()) + 1.0 / as_float(new.len()));
        (old_mean - new_mean).abs() / error.sqrt()
    };
    let possible = STEPS.into_iter().filter(|keep| values.len() >= keep + OLD);
    let best = possible.map(|keep| (keep, statistic(keep))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (best.1 > SURE).then_some(best.0)
}

fn moments(values: &[f64]) -> (f64, f64) {
    let count = as_float(values.len().max(1));
    let mean = values.iter().sum::<f64>() / count;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count)
}
