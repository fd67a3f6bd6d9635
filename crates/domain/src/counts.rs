//! The daily sums. Every counter only rises: readers add rows, and a gateway that restores a row after its store lost writes
//! takes the larger of each counter. What is taken back therefore has a counter of its own (`…_left`, `given`, `learned`).

pub mod check;

use serde::{Deserialize, Serialize};

use crate::{
    challenge::Kind,
    id::{Project, WorkerName},
    money::Money,
    time::Day,
};

/// Sums over one day, one worker, one project and one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// The UTC day of the entries. Claims and their outcomes are counted on the day the claim was made.
    pub day: Day,
    /// The worker the claims belong to.
    pub worker: WorkerName,
    /// The project they are charged to.
    pub project: Project,
    /// The kind of challenge.
    pub kind: Kind,
    /// The sums of that day.
    pub counts: Counts,
    /// How the sums were counted. Rows of earlier releases have 0 and are converted when they are read.
    form: u8,
}

macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident: $type:ty, )*) => {
        /// The counters of a day.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counts { $( $(#[$doc])* pub $name: $type, )* }

        impl Counts {
            /// Adds the counters of `other`.
            pub fn add(&mut self, other: &Self) {
                $( self.$name = self.$name.plus(other.$name); )*
            }

            /// Takes the larger of each counter. Two copies of one sum then lose nothing that either of them counted.
            pub fn raise(&mut self, other: &Self) {
                $( self.$name = self.$name.larger(other.$name); )*
            }
        }
    };
}

// Stored: fields are only appended.
counters! {
    /// Claims. A request that repeats one under its key is not a claim of its own, but each generation of a claim is one: a
    /// failure stays counted when its key opens the claim again.
    claims: u64,
    /// Solves that claims opened.
    opened: u64,
    /// Refills ordered by pools.
    ordered: u64,
    /// Attempts the provider accepted.
    attempts: u64,
    /// Answers of the provider.
    solved: u64,
    /// Claims that failed.
    failed: u64,
    /// Claims that were withdrawn.
    withdrawn: u64,
    /// Requests that repeated a claim under its key.
    replayed: u64,
    /// Claims that joined a solve of another claim.
    joined: u64,
    /// Claims that were served from stock when they arrived.
    stocked: u64,
    /// Attempts whose reply was lost.
    ambiguous: u64,
    /// Resubmissions authorised after a lost reply.
    authorised: u64,
    /// Tokens that expired unused.
    wasted: u64,
    /// Claims refused before anything was opened.
    refused: u64,
    /// Polls of tasks that ended.
    polls: u64,
    /// Milliseconds from acceptance to answer, of all answers.
    solve_ms: u64,
    /// What the attempts of known cost cost, on the day their cost became known.
    cost: Money,
    /// Attempts of unknown cost; never counted as zero.
    cost_unknown: u64,
    /// What the tokens had cost that served claims without a new payment, and the price of repeated requests.
    saved: Money,
    /// Claims that got a token.
    served: u64,
    /// Claims that lapsed.
    lapsed: u64,
    /// Claims that were served and are so no longer: taken back or lapsed before the token was fetched.
    served_left: u64,
    /// Attempts of known cost.
    priced: u64,
    /// Attempts of unknown cost that were counted again, when a later fact said what they cost.
    cost_recounted: u64,
    /// The cost of pool tokens that served claims counted here.
    taken: Money,
    /// Such tokens of unknown cost.
    taken_unknown: u64,
    /// The cost of tokens that this row bought for a pool and that served claims counted elsewhere.
    given: Money,
    /// Such tokens of unknown cost.
    given_unknown: u64,
    /// Claims served without a new payment: by a token that others left over, or by the solve of another claim.
    spared: u64,
    /// Of these, claims that are served no longer.
    spared_left: u64,
    /// Repeated requests for a claim that waited or had its token.
    spared_repeats: u64,
    /// What was counted as saved for claims that are served no longer.
    saved_left: Money,
    /// Savings of unknown worth.
    saved_unknown: u64,
    /// Of these, savings of claims that are served no longer.
    saved_unknown_left: u64,
    /// How long answers took.
    times: SolveTimes,
}

/// How many answers took how long, in classes that are 26 % wide: three to each doubling, from 0.4 s to 410 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SolveTimes([u64; 32]);

/// Where the claims of a sum stand. `claims` = `served` + `failed` + `lapsed` + `withdrawn` + `waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Outcomes {
    pub claims: u64,
    pub served: u64,
    pub failed: u64,
    pub lapsed: u64,
    pub withdrawn: u64,
    pub waiting: u64,
}

/// A counter of [`Counts`].
trait Counter: Copy {
    fn plus(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
}

/// The upper bounds of all classes of solve times but the last, in milliseconds: `400 * 2^(i/3)`.
const BOUNDS: [u64; 31] = [
    400, 504, 635, 800, 1008, 1270, 1600, 2016, 2540, 3200, 4032, 5080, 6400, 8063, 10_159, 12_800,
    16_127, 20_319, 25_600, 32_254, 40_637, 51_200, 64_508, 81_275, 102_400, 129_016, 162_550,
    204_800, 258_032, 325_100, 409_600,
];

// === impl Total ===

impl Total {
    const FORM: u8 = 1;

    /// The sums of a day.
    pub fn new(day: Day, worker: WorkerName, project: Project, kind: Kind, counts: Counts) -> Self {
        Self { day, worker, project, kind, counts, form: Self::FORM }
    }

    /// Converts a row of an earlier release, which counted repeated requests as claims, lapsed claims as failed, and every
    /// claim that opened no solve as saved. All claims without another outcome count as served.
    pub fn convert(&mut self) {
        if self.form >= Self::FORM {
            return;
        }
        self.form = Self::FORM;
        let counts = &mut self.counts;
        counts.claims = counts.claims.saturating_sub(counts.replayed);
        counts.served =
            counts.claims.saturating_sub(counts.failed).saturating_sub(counts.withdrawn);
        counts.priced = counts.attempts.saturating_sub(counts.cost_unknown);
        counts.spared = counts.joined + counts.stocked;
        counts.spared_repeats = counts.replayed;
    }
}

// === impl Counts ===

impl Counts {
    /// Where the claims stand. They always add up: a claim that an earlier release counted may end under this one, and is
    /// then left out of `served`.
    pub fn outcomes(&self) -> Outcomes {
        let served = self.served.saturating_sub(self.served_left);
        let Self { failed, lapsed, .. } = *self;
        let without = failed + lapsed + self.withdrawn;
        let claims = self.claims.max(without);
        let waiting = claims.saturating_sub(without + served);
        let served = claims - without - waiting;
        Outcomes { claims, served, failed, lapsed, withdrawn: self.withdrawn, waiting }
    }

    /// Claims served without a new payment, and repeated requests for a claim that waited or had its token.
    pub fn savings(&self) -> u64 {
        self.spared.saturating_sub(self.spared_left) + self.spared_repeats
    }

    /// What the claims cost, as far as it is known: the tokens of pools at the claims they served. The sum over all rows
    /// of a day is what was paid on it. A pool's own row is below zero on a day on which it passed on more than it bought.
    pub fn net_cost(&self) -> Money {
        self.cost + self.taken - self.given
    }

    /// The attempts of unknown cost in [`Self::net_cost`].
    pub fn unknown_costs(&self) -> u64 {
        let all = self.cost_unknown + self.taken_unknown;
        all.saturating_sub(self.cost_recounted).saturating_sub(self.given_unknown)
    }

    /// The attempts that [`Self::unknown_costs`] are a part of: all that were accepted, or may have been.
    pub fn costed(&self) -> u64 {
        (self.priced + self.unknown_costs()).max(self.attempts)
    }

    /// The known cost; `None` when something is unknown and nothing is known. Unknown is not zero.
    pub fn cost_if_known(&self) -> Option<Money> {
        if_known(self.net_cost(), self.unknown_costs())
    }

    /// Savings of unknown worth.
    pub fn unknown_savings(&self) -> u64 {
        self.saved_unknown.saturating_sub(self.saved_unknown_left)
    }

    /// What was saved, as far as it is known; `None` when something is unknown and nothing is known.
    pub fn saved_if_known(&self) -> Option<Money> {
        if_known(self.saved - self.saved_left, self.unknown_savings())
    }

    /// The saved share of what would have been paid, in whole percent. Attempts and savings of unknown worth are left out.
    /// `None` when nothing else is left.
    pub fn saved_percent(&self) -> Option<i64> {
        let (saved, paid) = (self.saved_if_known()?, self.cost_if_known()?);
        let all = saved + paid;
        (all > Money::ZERO).then(|| saved.micros().saturating_mul(100) / all.micros())
    }

    /// The share of requests that opened no solve: repeated, joined and served from stock.
    pub fn hit_rate(&self) -> Option<f64> {
        share(self.replayed + self.joined + self.stocked, self.claims + self.replayed)
    }

    /// Tokens that expired unused, as a share of the provider's answers.
    pub fn waste_rate(&self) -> Option<f64> {
        share(self.wasted.min(self.solved), self.solved)
    }

    /// The mean time from acceptance to answer.
    pub fn mean_solve_ms(&self) -> Option<u64> {
        self.solve_ms.checked_div(self.solved)
    }

    /// The mean cost of an attempt of known cost.
    pub fn mean_cost(&self) -> Option<Money> {
        let priced = i64::try_from(self.priced).ok().filter(|priced| *priced > 0)?;
        Some(Money::from_micros(self.cost.micros() / priced))
    }
}

fn if_known(amount: Money, unknown: u64) -> Option<Money> {
    (unknown == 0 || amount != Money::ZERO).then_some(amount)
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

// === impl SolveTimes ===

impl SolveTimes {
    /// One answer that took so long.
    pub fn one(millis: u64) -> Self {
        let mut times = Self::default();
        times.0[BOUNDS.partition_point(|bound| *bound <= millis)] = 1;
        times
    }

    /// The time within which this part of a hundred answers came, as the middle of its class: at most 12 % off. `None`
    /// without answers.
    pub fn percentile(&self, part: u64) -> Option<u64> {
        let all: u64 = self.0.iter().sum();
        let rank = all.saturating_mul(part).div_ceil(100).max(1);
        let mut seen = 0;
        let class = self.0.iter().position(|count| {
            seen += count;
            all > 0 && seen >= rank
        })?;
        let upper = BOUNDS.get(class).copied();
        let lower = class.checked_sub(1).map(|below| BOUNDS[below]);
        Some(match (lower, upper) {
            (Some(lower), Some(upper)) => (lower * upper).isqrt(),
            (None, upper) => upper.unwrap_or_default() / 2,
            (Some(lower), None) => lower,
        })
    }
}

// === impl Counter ===

impl Counter for u64 {
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
}

impl Counter for Money {
    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
}

impl Counter for SolveTimes {
    fn plus(mut self, other: Self) -> Self {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.plus(more);
        }
        self
    }

    fn larger(mut self, other: Self) -> Self {
        for (sum, theirs) in self.0.iter_mut().zip(other.0) {
            *sum = sum.larger(theirs);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(micros: i64) -> Money {
        Money::from_micros(micros)
    }

    #[test]
    fn what_is_taken_back_is_no_longer_counted_and_no_counter_falls() {
        let before = Counts { claims: 5, served: 3, failed: 1, ..Counts::default() };
        let mut after = before;
        after.add(&Counts { served_left: 1, lapsed: 1, ..Counts::default() });
        let expected =
            Outcomes { claims: 5, served: 2, failed: 1, lapsed: 1, withdrawn: 0, waiting: 1 };
        assert_eq!(after.outcomes(), expected);
        let mut merged = before;
        merged.raise(&after);
        assert_eq!(merged, after);
        merged.raise(&before);
        assert_eq!(merged, after);
    }

    #[test]
    fn a_sum_of_only_unknown_costs_is_unknown_and_no_percentage_is_made_of_it() {
        let counts =
            Counts { attempts: 50, cost_unknown: 50, saved: money(1000), ..Counts::default() };
        assert_eq!((counts.cost_if_known(), counts.saved_percent()), (None, None));
        let some = Counts { attempts: 53, priced: 3, cost: money(3000), ..counts };
        assert_eq!(some.cost_if_known(), Some(money(3000)));
        assert_eq!((some.saved_percent(), some.unknown_costs(), some.costed()), (Some(25), 50, 53));
        assert_eq!(Counts::default().cost_if_known(), Some(Money::ZERO));
    }

    #[test]
    fn the_cost_of_a_pools_token_moves_and_the_sum_stays() {
        let pool = Counts { cost: money(9), priced: 3, given: money(6), ..Counts::default() };
        let worker = Counts { taken: money(6), ..Counts::default() };
        assert_eq!((pool.net_cost(), worker.net_cost()), (money(3), money(6)));
        let mut all = pool;
        all.add(&worker);
        assert_eq!(all.net_cost(), money(9));
    }

    #[test]
    fn a_percentile_is_at_most_an_eighth_off() {
        for millis in [450, 999, 5_000, 12_345, 60_000, 180_000, 400_000] {
            let mut times = SolveTimes::default();
            for _ in 0..95 {
                times = times.plus(SolveTimes::one(millis));
            }
            for _ in 0..5 {
                times = times.plus(SolveTimes::one(900_000));
            }
            for part in [50, 95] {
                let found = times.percentile(part).unwrap();
                assert!(found.abs_diff(millis) * 8 <= millis, "{part} of {millis}: {found}");
            }
            assert_eq!(times.percentile(96), Some(409_600));
        }
        assert_eq!(SolveTimes::default().percentile(50), None);
        assert_eq!(SolveTimes::one(3).percentile(50), Some(200));
    }

    #[test]
    fn a_row_of_an_earlier_release_is_converted_once() {
        let counts = Counts { claims: 10, replayed: 3, failed: 2, stocked: 1, ..Counts::default() };
        let names = (WorkerName::new("ann").unwrap(), Project::new("shop").unwrap());
        let mut total = Total::new(Day::from_number(1), names.0, names.1, Kind::Image, counts);
        total.form = 0;
        total.convert();
        let expected = Outcomes { claims: 7, served: 5, failed: 2, ..Outcomes::default() };
        assert_eq!((total.counts.outcomes(), total.counts.savings()), (expected, 4));
        let once = total.clone();
        total.convert();
        assert_eq!(total, once);
    }
}
