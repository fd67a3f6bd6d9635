//! The paid service: where it is, with which key, how hard it may be pressed.

use std::collections::BTreeMap;

use domain::{challenge::Kind, money::Money, secret::Secret};
use engine::Slots;
use url::{Host, Url};

use super::plain;
use crate::config::{
    ConfigError,
    raw::{RawAutoOr, RawSecret, RawUpstream},
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
    /// Where it may call us back.
    pub pingback: Option<Pingback>,
}

/// Where the service may call us back when a task is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pingback {
    /// Our own address, as the service sees it: `https://host[:port][/path]`, without a slash at the end.
    pub url: Url,
    /// What the addresses are proved with; `None`: one is made.
    pub secret: Option<Secret>,
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
        pingback: check_pingback(raw.pingback_url, raw.pingback_secret, secrets)?,
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
    match url.scheme() {
        "https" => Ok(written),
        "http" if is_loopback(&url) => Ok(written),
        "http" => refused("is not encrypted and the key would travel in the clear; use https://"),
        _ => refused("expected https://"),
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Shorter ones can be guessed.
const PINGBACK_SECRET_LEAST: usize = 16;

/// Tokens come in by it: only over TLS, or from this very machine.
fn check_pingback(
    url: Option<String>,
    secret: Option<RawSecret>,
    secrets: &Reader<'_>,
) -> Result<Option<Pingback>, ConfigError> {
    let place = "[upstream] pingback_url";
    let refused = |what| Err(ConfigError::at(place, what));
    let Some(url) = url else {
        let what = "is missing; pingback_secret is of no use without it";
        return if secret.is_some() { refused(what) } else { Ok(None) };
    };
    let Ok(url) = Url::parse(&url) else {
        return refused("expected this gateway's own address, such as https://gateway.example.com");
    };
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        "http" => {
            return refused("is not encrypted and tokens would travel in the clear; use https://");
        }
        _ => return refused("expected https://"),
    }
    let is_plain = url.username().is_empty() && url.password().is_none();
    if !is_plain || url.query().is_some() || url.fragment().is_some() {
        return refused("must not hold a user, a query or a fragment; leave that out");
    }
    let place = "[upstream] pingback_secret";
    let secret = secret.map(|raw| secrets.read(place, &raw)).transpose()?;
    if secret.as_ref().is_some_and(|secret| secret.expose().len() < PINGBACK_SECRET_LEAST) {
        return Err(ConfigError::at(place, "is shorter than 16 characters; draw a longer one"));
    }
    Ok(Some(Pingback { url, secret }))
}

/// A pingback may reach any of the gateways on a shared store: all must know the secret.
pub(super) fn check_shared(pingback: Option<&Pingback>) -> Result<(), ConfigError> {
    match pingback {
        Some(Pingback { secret: None, .. }) => Err(ConfigError::at(
            "[upstream] pingback_secret",
            "is missing: all gateways on this store must have the same; write pingback_secret = \"env:NAME\"",
        )),
        Some(Pingback { secret: Some(_), .. }) | None => Ok(()),
    }
}

// === impl Pingback ===

impl Pingback {
    /// What the last part of an address is added to.
    pub fn base(&self) -> String {
        format!("{}/-/pingback/", self.url.as_str().trim_end_matches('/'))
    }
}

fn check_slots(raw: Option<RawAutoOr>) -> Result<Slots, ConfigError> {
    let refused = Err(ConfigError::at("[upstream] slots", "expected \"auto\" or a number from 1"));
    match raw {
        None => Ok(Slots::Auto),
        Some(RawAutoOr::Word(word)) if word == "auto" => Ok(Slots::Auto),
        Some(RawAutoOr::Number(number)) if number > 0 => {
            usize::try_from(number).map_or(refused, |number| Ok(Slots::Fixed(number)))
        }
        Some(RawAutoOr::Word(_) | RawAutoOr::Number(_)) => refused,
    }
}

fn at_least_one(place: &str, number: Option<u32>) -> Result<u32, ConfigError> {
    match number.unwrap_or(20) {
        0 => Err(ConfigError::at(place, "must be at least 1")),
        number => Ok(number),
    }
}
