//! The paid service: where it is, with which key, how hard it may be pressed.

use std::collections::BTreeMap;

use domain::{challenge::Kind, money::Money, secret::Secret};
use engine::Slots;
use url::{Host, Url};

use super::plain;
use crate::config::{
    ConfigError,
    raw::{RawSecret, RawSlots, RawUpstream},
    secret::Reader,
};

/// The paid service, and how hard it may be pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Which.
    pub service: Service,
    /// Tasks under way at once.
    pub slots: Slots,
    /// Central throttle.
    pub submits_per_second: u32,
    /// A task is asked for at most so often.
    pub polls_per_task: u32,
    /// Listed price of one solve.
    pub prices: BTreeMap<Kind, Money>,
}

/// Which service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Our own simulator, started in this process on loopback.
    Simulator,
    /// A service somewhere else.
    Elsewhere {
        /// Its address.
        url: String,
        /// The account's key.
        key: Secret,
    },
}

const CAPTCHAAI: &str = "https://ocr.captchaai.com";
const KEY_VARIABLE: &str = "CAPTCHAAI_API_KEY";

pub(super) fn check(raw: RawUpstream, secrets: &Reader<'_>) -> Result<Upstream, ConfigError> {
    let prices = raw.price_per_1000.iter().map(|(name, amount)| {
        let place = "[upstream] price_per_1000";
        Ok((plain::kind(place, name)?, plain::money(place, amount)?.per_thousand()))
    });
    Ok(Upstream {
        prices: prices.collect::<Result<_, _>>()?,
        slots: check_slots(raw.slots)?,
        submits_per_second: at_least_one("[upstream] submits_per_second", raw.submits_per_second)?,
        polls_per_task: at_least_one("[upstream] polls_per_task", raw.polls_per_task)?,
        service: check_service(raw.url, raw.key, secrets)?,
    })
}

fn check_service(
    url: Option<String>,
    key: Option<RawSecret>,
    secrets: &Reader<'_>,
) -> Result<Service, ConfigError> {
    let tutorial_key = secrets.environment.get(KEY_VARIABLE);
    let url = match url {
        Some(url) if url == "sim" => return Ok(Service::Simulator),
        Some(url) => url,
        None if key.is_some() || tutorial_key.is_some() => CAPTCHAAI.into(),
        None => return Ok(Service::Simulator),
    };
    let key = match (key, tutorial_key) {
        (Some(key), _) => secrets.read("[upstream] key", &key)?,
        (None, Some(key)) => Secret::new(key),
        (None, None) => {
            return Err(ConfigError::at(
                "[upstream] key",
                format!("is missing; set {KEY_VARIABLE}, or write key = \"file:PATH\""),
            ));
        }
    };
    Ok(Service::Elsewhere { url: check_url(url)?, key })
}

/// The key travels to this address: only over TLS, or to this very machine.
fn check_url(written: String) -> Result<String, ConfigError> {
    let refused = |what| Err(ConfigError::at("[upstream] url", what));
    let Ok(url) = Url::parse(&written) else {
        return refused("expected an address such as https://ocr.captchaai.com, or \"sim\"");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refused("must not hold a user name or password; the key goes into `key`");
    }
    let is_loopback = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "https" => Ok(written),
        "http" if is_loopback => Ok(written),
        "http" => refused("is not encrypted and the key would travel in the clear; use https://"),
        _ => refused("expected https://"),
    }
}

fn check_slots(raw: Option<RawSlots>) -> Result<Slots, ConfigError> {
    let refused = Err(ConfigError::at("[upstream] slots", "expected \"auto\" or a number from 1"));
    match raw {
        None => Ok(Slots::Auto),
        Some(RawSlots::Word(word)) if word == "auto" => Ok(Slots::Auto),
        Some(RawSlots::Number(number)) if number > 0 => {
            usize::try_from(number).map_or(refused, |number| Ok(Slots::Fixed(number)))
        }
        Some(RawSlots::Word(_) | RawSlots::Number(_)) => refused,
    }
}

fn at_least_one(place: &str, number: Option<u32>) -> Result<u32, ConfigError> {
    match number.unwrap_or(20) {
        0 => Err(ConfigError::at(place, "must be at least 1")),
        number => Ok(number),
    }
}
