//! The options of the simulated provider. Used by `behaviour`.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    challenge::{Challenge, Kind},
    money::Money,
    secret::Secret,
};

use crate::pace::{self, SolveTime};

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct BehaviourConfig {
    /// Equal seeds and equal calls give equal answers.
    pub seed: u64,
    /// Concurrent tasks; `None` for no limit.
    pub threads: Option<u32>,
    /// Realistic solve times instead of short ones.
    pub realistic: bool,
    /// Of single kinds; others have the usual ones.
    pub solve_times: BTreeMap<Kind, SolveTime>,
    pub prices: BTreeMap<Kind, Money>,
    /// Of challenges with `enterprise=1`; others cost what their kind does.
    pub enterprise_prices: BTreeMap<Kind, Money>,
    pub balance: Money,
    /// Behave like CaptchaAI: threads instead of prices, `threadsinfo`, numbers as ids for reCAPTCHA, `result` and `user_agent`,
    /// `ERROR_ZERO_BALANCE` when no thread is free.
    pub captchaai: bool,
    /// Enforce the documented temporary bans.
    pub bans: bool,
    /// Support `get` with `ids`.
    pub batch: bool,
    /// The account's key; with `None`, any key of 32 characters is valid.
    pub key: Option<Secret>,
    /// How long a result can be fetched after it was solved.
    pub retention: Duration,
}

// === impl BehaviourConfig ===

impl BehaviourConfig {
    /// A fast provider without limits and with plenty of balance.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            threads: None,
            realistic: false,
            solve_times: BTreeMap::new(),
            prices: BTreeMap::new(),
            enterprise_prices: BTreeMap::new(),
            balance: Money::from_micros(1_000_000_000),
            captchaai: false,
            bans: false,
            batch: true,
            key: None,
            retention: Duration::from_secs(600),
        }
    }

    /// Makes every task of a known kind take exactly this long.
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

    pub(crate) fn price(&self, challenge: &Challenge) -> Money {
        let kind = challenge.kind();
        let is_enterprise = challenge.params().get("enterprise").is_some_and(|value| value == "1");
        if let Some(price) = self.enterprise_prices.get(kind).filter(|_| is_enterprise) {
            return *price;
        }
        let usual = if self.captchaai { Money::ZERO } else { pace::price(kind) };
        self.prices.get(kind).copied().unwrap_or(usual)
    }
}
