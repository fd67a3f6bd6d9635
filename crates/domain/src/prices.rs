//! Prices: what the provider charges for one solve, or for the time of one of its threads.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use crate::{
    challenge::{Challenge, Kind},
    money::Money,
};

/// The list price of one solve, by kind and variant. Without an entry, a price is unknown, which is not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    /// By kind.
    pub kinds: BTreeMap<Kind, Money>,
    /// Of challenges with `enterprise=1`, where they cost something else.
    pub enterprise: BTreeMap<Kind, Money>,
    /// Of all other kinds.
    pub usual: Option<Money>,
    /// The plan of an account that pays for threads. There are no list prices then.
    pub plan: Option<Plan>,
}

/// A plan that sells threads for a month: an attempt costs the time for which it occupied one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The price of a month.
    pub monthly: Money,
    /// The threads it buys.
    pub threads: NonZeroU32,
}

/// A month of a plan: the twelfth part of a year of 365.25 days.
const MONTH_MILLIS: i128 = 2_629_800_000;

/// The kinds that have a variant with `enterprise=1`.
pub const ENTERPRISE_KINDS: [Kind; 3] = [Kind::RecaptchaV2, Kind::RecaptchaV3, Kind::Hcaptcha];

impl PriceList {
    /// The price of one attempt of a challenge. Under a plan it is an estimate: the cost of the time that an attempt is
    /// expected to take.
    pub fn of(&self, challenge: &Challenge, expected: impl FnOnce() -> Duration) -> Option<Money> {
        if let Some(plan) = self.plan {
            return Some(plan.cost(expected()));
        }
        self.listed(challenge)
    }

    /// The list price of a challenge.
    pub fn listed(&self, challenge: &Challenge) -> Option<Money> {
        let kind = challenge.kind();
        let is_enterprise = challenge.params().get("enterprise").is_some_and(|value| value == "1");
        let variant = self.enterprise.get(kind).filter(|_| is_enterprise);
        variant.copied().or_else(|| self.of_kind(kind))
    }

    /// The price of a kind without its variants.
    pub fn of_kind(&self, kind: &Kind) -> Option<Money> {
        self.kinds.get(kind).copied().or(self.usual)
    }

    /// What an attempt cost that occupied a thread for this time, if the provider does not say: its price, or the time
    /// under a plan.
    pub fn charge(&self, price: Option<Money>, took: Duration) -> Option<Money> {
        self.plan.map(|plan| plan.cost(took)).or(price)
    }

    /// Whether no price is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Plan {
    /// The cost of a thread for this time, rounded to a millionth.
    pub fn cost(&self, time: Duration) -> Money {
        let month = i128::from(self.threads.get()) * MONTH_MILLIS;
        let millis = i128::try_from(time.as_millis()).unwrap_or(i128::MAX);
        let amount = i128::from(self.monthly.micros()).saturating_mul(millis);
        let micros = amount.saturating_add(month / 2) / month;
        Money::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

impl From<BTreeMap<Kind, Money>> for PriceList {
    fn from(kinds: BTreeMap<Kind, Money>) -> Self {
        Self { kinds, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{challenge::ChallengeParts, site::PageUrl};

    #[test]
    fn a_variant_has_its_own_price_and_other_kinds_the_usual_one() {
        let price = Money::from_micros;
        let list = PriceList {
            kinds: [(Kind::RecaptchaV2, price(1000))].into(),
            enterprise: [(Kind::RecaptchaV2, price(3000))].into(),
            usual: Some(price(500)),
            plan: None,
        };
        let of = |kind: Kind, enterprise: &str| {
            let parts = ChallengeParts {
                sitekey: Some("0x4AAA".into()),
                pageurl: Some(PageUrl::parse("https://shop.example.com/").unwrap()),
                params: [("enterprise".to_owned(), enterprise.to_owned())].into(),
                ..ChallengeParts::default()
            };
            list.listed(&Challenge::new(kind, parts).unwrap())
        };
        assert_eq!(of(Kind::RecaptchaV2, "0"), Some(price(1000)));
        assert_eq!(of(Kind::RecaptchaV2, "1"), Some(price(3000)));
        assert_eq!(of(Kind::Hcaptcha, "1"), Some(price(500)));
    }

    #[test]
    fn a_plan_costs_the_time_of_its_threads() {
        let plan =
            Plan { monthly: Money::from_micros(15_000_000), threads: NonZeroU32::new(5).unwrap() };
        // 30.4375 days of 86,400 s.
        let month = Duration::from_secs(2_629_800);
        assert_eq!(plan.cost(month * 5), plan.monthly);
        assert_eq!(plan.cost(Duration::from_secs(60)), Money::from_micros(68));
        assert_eq!(plan.cost(Duration::ZERO), Money::ZERO);
        let list = PriceList { plan: Some(plan), ..PriceList::default() };
        assert_eq!(list.charge(None, Duration::from_secs(60)), Some(Money::from_micros(68)));
        assert!(!list.is_empty());
    }
}
