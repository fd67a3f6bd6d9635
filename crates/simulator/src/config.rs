//! What sort of provider is simulated. Read by `behaviour`.

use std::{collections::BTreeMap, time::Duration};

use domain::{challenge::Kind, money::Money, secret::Secret};

use crate::pace::{self, SolveTime};

/// What sort of provider it is.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that have nothing to do with each other"
)]
pub struct BehaviourConfig {
    /// Equal seeds and equal calls give equal answers.
    pub seed: u64,
    /// How many tasks it works on at once; `None` for any number.
    pub threads: Option<u32>,
    /// Times as seen at real providers instead of pleasant ones.
    pub realistic: bool,
    /// Times for single kinds, instead of either.
    pub solve_times: BTreeMap<Kind, SolveTime>,
    /// Prices for single kinds, instead of the usual ones.
    pub prices: BTreeMap<Kind, Money>,
    /// What is on the account at the start.
    pub balance: Money,
    /// CaptchaAI's ways: threads instead of prices, `threadsinfo`, numbers as ids for reCAPTCHA, `result` and
    /// `user_agent`, `ERROR_ZERO_BALANCE` when no thread is free.
    pub captchaai: bool,
    /// The documented temporary bans.
    pub bans: bool,
    /// Whether it answers `get` with `ids`.
    pub batch: bool,
    /// The account's key; `None` takes any of 32 characters.
    pub key: Option<Secret>,
    /// How long after it was solved a result can be fetched.
    pub retention: Duration,
}

// === impl BehaviourConfig ===

impl BehaviourConfig {
    /// A pleasant provider with plenty of threads and money.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            threads: None,
            realistic: false,
            solve_times: BTreeMap::new(),
            prices: BTreeMap::new(),
            balance: Money::from_micros(1_000_000_000),
            captchaai: false,
            bans: false,
            batch: true,
            key: None,
            retention: Duration::from_secs(600),
        }
    }

    /// Every task of a kind with a name of its own takes exactly this long.
    #[must_use]
    pub fn solving_in(mut self, length: Duration) -> Self {
        let kinds = Kind::known().map(|kind| (kind, SolveTime::exactly(length)));
        self.solve_times = kinds.collect();
        self
    }

    pub(crate) fn solve_time(&self, kind: &Kind) -> SolveTime {
        let usual = if self.realistic { SolveTime::realistic } else { SolveTime::pleasant };
        self.solve_times.get(kind).copied().unwrap_or_else(|| usual(kind))
    }

    pub(crate) fn price(&self, kind: &Kind) -> Money {
        let usual = if self.captchaai { Money::ZERO } else { pace::price(kind) };
        self.prices.get(kind).copied().unwrap_or(usual)
    }
}

impl Default for BehaviourConfig {
    fn default() -> Self {
        Self::new(1)
    }
}
