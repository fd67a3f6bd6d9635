//! List prices: what the provider charges for one solve.

use std::collections::BTreeMap;

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
}

/// The kinds that have a variant with `enterprise=1`.
pub const ENTERPRISE_KINDS: [Kind; 3] = [Kind::RecaptchaV2, Kind::RecaptchaV3, Kind::Hcaptcha];

impl PriceList {
    /// The price of a challenge.
    pub fn of(&self, challenge: &Challenge) -> Option<Money> {
        let kind = challenge.kind();
        let is_enterprise = challenge.params().get("enterprise").is_some_and(|value| value == "1");
        let variant = self.enterprise.get(kind).filter(|_| is_enterprise);
        variant.copied().or_else(|| self.of_kind(kind))
    }

    /// The price of a kind without its variants.
    pub fn of_kind(&self, kind: &Kind) -> Option<Money> {
        self.kinds.get(kind).copied().or(self.usual)
    }

    /// Whether no price is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
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
        };
        let of = |kind: Kind, enterprise: &str| {
            let parts = ChallengeParts {
                sitekey: Some("0x4AAA".into()),
                pageurl: Some(PageUrl::parse("https://shop.example.com/").unwrap()),
                params: [("enterprise".to_owned(), enterprise.to_owned())].into(),
                ..ChallengeParts::default()
            };
            list.of(&Challenge::new(kind, parts).unwrap())
        };
        assert_eq!(of(Kind::RecaptchaV2, "0"), Some(price(1000)));
        assert_eq!(of(Kind::RecaptchaV2, "1"), Some(price(3000)));
        assert_eq!(of(Kind::Hcaptcha, "1"), Some(price(500)));
    }
}
