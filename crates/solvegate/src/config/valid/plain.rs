//! Durations, amounts and lifetimes: small values with a written form.

use std::{collections::BTreeMap, time::Duration};

use domain::{challenge::Kind, money::Money, token::ShelfLife};

use crate::config::{
    ConfigError,
    raw::{RawMoney, RawShelfLife},
};

/// A duration such as `5s`, `250ms` or `2m`; zero is allowed.
pub(super) fn duration_or(
    place: &str,
    written: Option<String>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    written.map_or(Ok(default), |text| duration(place, &text))
}

/// The same, and more than zero.
pub(super) fn some_duration_or(
    place: &str,
    written: Option<String>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    match duration_or(place, written, default)? {
        Duration::ZERO => Err(ConfigError::at(place, "must be more than nothing")),
        length => Ok(length),
    }
}

/// Reads a duration.
pub fn read_duration(text: &str) -> Option<Duration> {
    let length: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(length).ok().filter(|length| length.as_secs() <= 366 * 86_400)
}

fn duration(place: &str, text: &str) -> Result<Duration, ConfigError> {
    let refused = || ConfigError::at(place, format!("{text:?} is not a duration such as \"5s\""));
    read_duration(text).ok_or_else(refused)
}

pub(super) fn money(place: &str, raw: &RawMoney) -> Result<Money, ConfigError> {
    let amount = Money::parse(&raw.0).filter(|amount| *amount >= Money::ZERO);
    amount.ok_or_else(|| ConfigError::at(place, "expected an amount of zero or more, such as 1.5"))
}

pub(super) fn kind(place: &str, name: &str) -> Result<Kind, ConfigError> {
    name.parse().map_err(|error| ConfigError::at(place, error))
}

pub(super) fn shelf_lives(
    raw: BTreeMap<String, RawShelfLife>,
) -> Result<BTreeMap<Kind, ShelfLife>, ConfigError> {
    let each = |(name, raw): (String, RawShelfLife)| {
        let place = format!("[tokens.{name}]");
        let kind = kind(&place, &name)?;
        let (lifetime, margin) = kind.lifetime_and_margin();
        let lifetime = duration_or(&place, raw.lifetime, lifetime)?;
        let margin = duration_or(&place, raw.margin, margin)?;
        let life = ShelfLife::new(lifetime, margin).map_err(|e| ConfigError::at(&place, e))?;
        Ok((kind, life))
    };
    raw.into_iter().map(each).collect()
}
