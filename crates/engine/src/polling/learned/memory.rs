//! How long tasks took, per family, as far as polls can tell. Bounded, and small enough to be kept over a restart.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    super::{Family, Observation, Timing, as_float},
    cells::{CELLS, LAST, LOGS, nearest},
    fit::{Fit, Interval},
};

/// How long tasks took, per family.
#[derive(Debug, Default)]
pub struct SolveTimeMemory {
    families: Mutex<BTreeMap<Family, FamilyTimes>>,
    /// Stands for families without observations.
    unknown: FamilyTimes,
}

#[derive(Debug, Default)]
pub(super) struct FamilyTimes {
    /// All tasks ever seen.
    seen: u64,
    /// Observations of the last tasks.
    recent: VecDeque<Interval>,
    pub(super) fit: Fit,
    /// Tasks seen since the fit was made.
    unfitted: usize,
    /// Counts the fits, so that plans made from an older one are replaced.
    pub(super) version: u64,
}

const FAMILIES: usize = 256;
/// Fewer tasks would give a worse fit; more would hold on to a provider's old speed.
const MAX_RECENT: usize = 256;
/// The fit is renewed when one in this many tasks is new.
const REFIT: usize = 16;
const FORMAT: u8 = 1;
const PROXIED: &str = "+proxied";

// === impl SolveTimeMemory ===

impl SolveTimeMemory {
    pub fn learn(&self, family: &Family, seen: Observation) {
        let Some(interval) = interval(seen) else { return };
        let mut families = self.families.lock();
        if !families.contains_key(family) && families.len() >= FAMILIES {
            return;
        }
        families.entry(family.clone()).or_default().add(interval);
    }

    pub(super) fn read<T>(&self, family: &Family, read: impl FnOnce(&FamilyTimes) -> T) -> T {
        let families = self.families.lock();
        read(families.get(family).unwrap_or(&self.unknown))
    }

    /// The chance that a task is ready by `age`, given that it was not at the age of `polled_at`.
    pub(crate) fn chance_ready(&self, family: &Family, polled_at: Duration, age: Duration) -> f64 {
        self.read(family, |times| times.fit.curve.chance(polled_at, age))
    }

    pub fn timing(&self, family: &Family) -> Timing {
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

    /// Everything learned, as a name and some bytes for each family.
    pub(crate) fn save(&self) -> Vec<(String, Vec<u8>)> {
        self.families
            .lock()
            .iter()
            .map(|(family, learned)| (name(family), learned.to_bytes()))
            .collect()
    }

    /// Restores what was saved. Unreadable bytes are ignored: the family is learned again.
    pub(crate) fn load(&self, name: &str, bytes: &[u8]) {
        let Some(family) = family(name) else { return };
        let Some(mut learned) = FamilyTimes::from_bytes(bytes) else { return };
        let mut families = self.families.lock();
        match families.get(&family) {
            Some(known) if known.seen >= learned.seen => return,
            Some(known) => learned.version += known.version,
            None if families.len() >= FAMILIES => return,
            None => {}
        }
        families.insert(family, learned);
    }
}

fn interval(seen: Observation) -> Option<Interval> {
    let (from, to) = match seen {
        Observation::Ready { after, by } if by < after => return None,
        Observation::Ready { after, by } => {
            let from = nearest(after).min(LAST);
            (from, nearest(by).max(from + 1))
        }
        Observation::NotWithin(age) => (nearest(age), CELLS),
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

// === impl FamilyTimes ===

impl FamilyTimes {
    fn add(&mut self, interval: Interval) {
        self.seen = self.seen.saturating_add(1);
        self.recent.push_back(interval);
        if self.recent.len() > MAX_RECENT {
            self.recent.pop_front();
        }
        self.unfitted += 1;
        if self.unfitted * REFIT >= self.recent.len() {
            self.forget_the_old_speed();
            self.refit();
        }
    }

    fn refit(&mut self) {
        self.unfitted = 0;
        self.version += 1;
        self.fit = Fit::of(self.recent.make_contiguous(), &self.fit);
    }

    /// Drops observations from before the provider became slower or faster.
    fn forget_the_old_speed(&mut self) {
        let recent: Vec<f64> = self.recent.iter().copied().map(middle).collect();
        if let Some(keep) = change(&recent) {
            self.recent.drain(..self.recent.len() - keep);
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.seen.to_le_bytes());
        for (from, to) in &self.recent {
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
        let recent: VecDeque<Interval> = intervals.iter().map(read).collect();
        let is_valid = |(from, to): &Interval| from < to && usize::from(*to) <= CELLS;
        if !rest.is_empty() || recent.len() > MAX_RECENT || !recent.iter().all(is_valid) {
            return None;
        }
        let mut learned = Self { seen: u64::from_le_bytes(*seen), recent, ..Self::default() };
        learned.refit();
        Some(learned)
    }
}

/// The likely time within the interval, as a logarithm. A task that is ready at its first poll was rarely ready much earlier.
fn middle((from, to): Interval) -> f64 {
    let last = LOGS[usize::from(to) - 1];
    let first = LOGS[usize::from(from)].max(last - 0.7);
    f64::midpoint(first, last)
}

/// The numbers of recent values that are tested for a change of speed.
const STEPS: [usize; 8] = [8, 12, 18, 27, 40, 60, 90, 128];
const OLD: usize = 20;
const SURE: f64 = 4.2;

/// How many of the last values differ from those before by more than chance explains.
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

#[cfg(test)]
mod tests {
    use domain::challenge::Kind;
    use proptest::prelude::*;

    use super::*;

    fn learned(kind: Kind, tasks: u64) -> (SolveTimeMemory, Family) {
        let (memory, family) = (SolveTimeMemory::default(), Family { kind, proxied: true });
        for i in 0..tasks {
            let after = Duration::from_millis(3000 + i % 7 * 500);
            memory.learn(&family, Observation::Ready { after, by: after + Duration::from_secs(1) });
        }
        (memory, family)
    }

    #[test]
    fn learned_times_survive_a_restart() {
        let (memory, family) = learned(Kind::Turnstile, 300);
        let saved = memory.save();
        assert_eq!(saved[0].0, "turnstile+proxied");
        assert!(saved[0].1.len() <= 2048, "{} bytes", saved[0].1.len());
        let again = SolveTimeMemory::default();
        again.load(&saved[0].0, &saved[0].1);
        assert_eq!(again.save(), saved);
        let (before, after) = (memory.timing(&family), again.timing(&family));
        assert_eq!((before.seen, after.seen), (300, 300));
        let apart = (before.mean.as_secs_f64() - after.mean.as_secs_f64()).abs();
        assert!(apart < 0.1, "{before:?} {after:?}");
    }

    #[test]
    fn saved_times_do_not_replace_newer_ones() {
        let (memory, family) = learned(Kind::Turnstile, 50);
        let (_, old) = learned(Kind::Turnstile, 20).0.save().remove(0);
        memory.load("turnstile+proxied", &old);
        assert_eq!(memory.timing(&family).seen, 50);
    }

    #[test]
    fn the_number_of_families_is_bounded() {
        let (memory, _) = learned(Kind::Turnstile, 1);
        for i in 0..1000 {
            let family = Family { kind: Kind::Other(format!("kind_{i}")), proxied: false };
            memory.learn(&family, Observation::NotWithin(Duration::from_secs(1)));
            memory.load(&format!("saved_{i}"), &[FORMAT, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(memory.save().len(), FAMILIES);
    }

    #[test]
    fn a_change_of_speed_is_distinguished_from_chance() {
        let noise = |i: usize| as_float(i * 7919 % 101) / 101.0 - 0.5;
        let steady: Vec<f64> = (0..256).map(|i| 3.0 + noise(i)).collect();
        assert_eq!(change(&steady), None);
        let slower: Vec<f64> =
            (0..256).map(|i| noise(i) + if i < 226 { 3.0 } else { 3.4 }).collect();
        assert!(change(&slower).is_some_and(|keep| (18..=40).contains(&keep)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn arbitrary_bytes_do_no_harm(
            name in "[a-z_+]{0,12}|turnstile",
            mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
            is_ours in any::<bool>(),
        ) {
            if is_ours && !bytes.is_empty() {
                bytes[0] = FORMAT;
            }
            let memory = SolveTimeMemory::default();
            memory.load(&name, &bytes);
            let family = Family { kind: Kind::Turnstile, proxied: false };
            memory.learn(&family, Observation::NotWithin(Duration::MAX));
            memory.learn(&family, Observation::Ready { after: Duration::MAX, by: Duration::MAX });
            memory.learn(&family, Observation::Ready { after: Duration::ZERO, by: Duration::ZERO });
            let timing = memory.timing(&family);
            prop_assert!(timing.q01 <= timing.q99 && timing.q99 <= Duration::from_secs(601));
        }

        #[test]
        fn a_cut_or_damaged_save_is_refused_or_read_as_valid(at in 0..800_usize, bit in 0..8_u32, cut in any::<bool>()) {
            let (memory, _) = learned(Kind::Image, 200);
            let (name, mut bytes) = memory.save().remove(0);
            let at = at.min(bytes.len() - 1);
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
            let again = SolveTimeMemory::default();
            again.load(&name, &bytes);
            for (_, saved) in again.save() {
                prop_assert_eq!(&saved, &bytes);
            }
        }
    }
}
