//! The arrivals of claims for `bench pool`. Every seed has its own.

/// Arrival times, in seconds from the start.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) arrivals: Vec<f64>,
    /// The time that counts.
    pub(super) counted: std::ops::Range<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Day {
    /// A constant rate per second, at random, for some hours.
    Smooth { rate: f64, hours: f64 },
    /// Ten minutes at 0.5/s in every hour of a day.
    Periodic,
    /// Bursts of 1 to 20 minutes at 0.1 to 2/s, 5 to 120 minutes apart, for a day.
    Random,
    /// From nothing at midnight to 0.5/s at noon.
    Diurnal,
    /// Six hours with ten minutes at 0.5/s each, then nothing for a day.
    Silent,
}

const HOUR: f64 = 3_600.0;
const BURST: f64 = 600.0;
const BURST_RATE: f64 = 0.5;
const BUSY_HOURS: u32 = 6;
/// Excludes the time until the pool may hold what it needs, which the first claims have to earn.
const WARM_UP: f64 = 900.0;

// === impl Workload ===

impl Workload {
    pub(super) fn of(day: Day, hours: u32, seed: u64) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let length = f64::from(hours) * HOUR;
        let mut work = Self { arrivals: Vec::new(), counted: 0.0..length };
        match day {
            Day::Smooth { rate, hours } => {
                let length = length.min(hours * HOUR);
                work.counted = WARM_UP..length;
                work.burst(0.0, length, rate, &mut chance);
            }
            Day::Periodic => work.hourly(hours, &mut chance),
            Day::Silent => {
                work.hourly(BUSY_HOURS.min(hours), &mut chance);
                let last = work.arrivals.last().copied().unwrap_or_default();
                work.counted = last.next_up()..last + length;
            }
            Day::Random => work.random(length, &mut chance),
            Day::Diurnal => {
                work.burst(0.0, length, BURST_RATE, &mut chance);
                let part = |at: f64| 0.5 - 0.5 * (std::f64::consts::TAU * at / length).cos();
                work.arrivals.retain(|at| chance.f64() < part(*at));
            }
        }
        work
    }

    fn hourly(&mut self, hours: u32, chance: &mut fastrand::Rng) {
        for hour in 0..hours {
            self.burst(f64::from(hour) * HOUR, BURST, BURST_RATE, chance);
        }
    }

    fn random(&mut self, until: f64, chance: &mut fastrand::Rng) {
        let between = |low: f64, high: f64, part: f64| low + (high - low) * part;
        let mut from = between(300.0, 7_200.0, chance.f64());
        while from < until {
            let length = between(60.0, 1_200.0, chance.f64());
            let rate = between(0.1_f64.ln(), 2.0_f64.ln(), chance.f64()).exp();
            self.burst(from, length.min(until - from), rate, chance);
            from += length + between(300.0, 7_200.0, chance.f64());
        }
    }

    /// Independent claims.
    fn burst(&mut self, from: f64, length: f64, rate: f64, chance: &mut fastrand::Rng) {
        let mut gap = || -(1.0 - chance.f64()).ln() / rate;
        let mut at = from + gap();
        while at < from + length {
            self.arrivals.push(at);
            at += gap();
        }
    }
}
