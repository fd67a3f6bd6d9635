//! The paid service: its address, its key and its limits.

use domain::{budget::Allowance, money::Currency, prices::PriceList, secret::Secret};
use engine::Slots;
use url::{Host, Url};

use super::budgets;
use crate::config::{
    ConfigError, Environment,
    written::{AutoOr, Given, UpstreamKeys},
};

/// The paid service and the limits it is used with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub service: Service,
    pub slots: Slots,
    pub submits_per_second: u32,
    pub polls_per_task: u32,
    /// Prices of one solve.
    pub prices: PriceList,
    /// The currency of all amounts.
    pub currency: Option<Currency>,
    /// What the account may spend.
    pub budget: Allowance,
    pub pingback: Option<Pingback>,
}

/// How the service reports finished tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pingback {
    /// The gateway's own address as the service sees it: `https://host[:port][/path]`.
    pub url: Url,
    /// Pingback addresses are derived from it; `None`: the gateway makes one.
    pub secret: Option<Secret>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// The simulator, started in this process on loopback.
    Simulator,
    Elsewhere {
        url: String,
        key: Secret,
    },
}

const CAPTCHAAI: &str = "https://ocr.captchaai.com";
const KEY_VARIABLE: &str = "CAPTCHAAI_API_KEY";

pub(super) fn check(
    keys: UpstreamKeys,
    environment: &Environment,
) -> Result<Upstream, ConfigError> {
    Ok(Upstream {
        prices: budgets::prices(keys.price_per_1000, &keys.plan)?,
        currency: keys.currency.map(|given| given.value),
        budget: budgets::allowance(keys.budget),
        slots: keys.slots.check(check_slots)?,
        submits_per_second: keys.submits_per_second.value.get(),
        polls_per_task: keys.polls_per_task.value.get(),
        pingback: check_pingback(keys.pingback_url, keys.pingback_secret)?,
        service: check_service(keys.url, keys.key, environment)?,
    })
}

fn check_service(
    url: Option<Given<String>>,
    key: Option<Given<Secret>>,
    environment: &Environment,
) -> Result<Service, ConfigError> {
    let key = key.map(|key| key.value).or_else(|| environment.get(KEY_VARIABLE).map(Secret::new));
    let url = match url {
        Some(url) if url.value == "sim" => return Ok(Service::Simulator),
        Some(url) => url.check(check_url)?,
        None if key.is_some() => CAPTCHAAI.into(),
        None => return Ok(Service::Simulator),
    };
    let key = key.ok_or_else(|| {
        let what = format!("is missing; set {KEY_VARIABLE}, or write key = \"file:PATH\"");
        ConfigError::at("[upstream] key", what)
    })?;
    Ok(Service::Elsewhere { url, key })
}

/// Keys and tokens are sent to these addresses, so they must be encrypted or on this machine.
fn check_address(
    written: &str,
    expected: &'static str,
    unencrypted: &'static str,
) -> Result<Url, &'static str> {
    let url = Url::parse(written).map_err(|_| expected)?;
    let is_loopback = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback => Ok(url),
        "http" => Err(unencrypted),
        _ => Err("expected https://"),
    }
}

fn check_url(written: String) -> Result<String, &'static str> {
    let url = check_address(
        &written,
        "expected an address such as https://ocr.captchaai.com, or \"sim\"",
        "is not encrypted, so the key could be read on the way; use https://",
    )?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    if !is_plain {
        return Err("must not hold a user name or password; the key goes into `key`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "must not hold a query or a fragment; the key goes into `key` or CAPTCHAAI_API_KEY",
        );
    }
    Ok(written)
}

/// A shorter secret could be guessed.
const MIN_PINGBACK_SECRET: usize = 16;

fn check_pingback(
    url: Option<Given<String>>,
    secret: Option<Given<Secret>>,
) -> Result<Option<Pingback>, ConfigError> {
    let Some(url) = url else {
        let what = "is missing; pingback_secret has no effect without it";
        let refused = |_| Err(ConfigError::at("[upstream] pingback_url", what));
        return secret.map_or(Ok(None), refused);
    };
    let check_length = |secret: Secret| match secret.expose().len() {
        length if length < MIN_PINGBACK_SECRET => Err("is shorter than 16 characters"),
        _ => Ok(secret),
    };
    let url = url.check(|url| check_pingback_url(&url))?;
    let secret = secret.map(|secret| secret.check(check_length)).transpose()?;
    Ok(Some(Pingback { url, secret }))
}

fn check_pingback_url(written: &str) -> Result<Url, &'static str> {
    let url = check_address(
        written,
        "expected this gateway's own address, such as https://gateway.example.com",
        "is not encrypted, so tokens could be read on the way; use https://",
    )?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    if !is_plain || url.query().is_some() || url.fragment().is_some() {
        return Err("must not hold a user, a query or a fragment; leave that out");
    }
    Ok(url)
}

/// A pingback may reach any of the gateways on a shared store, so all of them must know the secret.
pub(super) fn check_shared(pingback: Option<&Pingback>) -> Result<(), ConfigError> {
    if pingback.is_none_or(|pingback| pingback.secret.is_some()) {
        return Ok(());
    }
    let what = "is missing: all gateways on this store need the same one; write pingback_secret = \"env:NAME\"";
    Err(ConfigError::at("[upstream] pingback_secret", what))
}

// === impl Service ===

impl Service {
    /// Whether calls go to the same address.
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Simulator, Self::Simulator) => true,
            (Self::Elsewhere { url, .. }, Self::Elsewhere { url: other, .. }) => url == other,
            (Self::Simulator, Self::Elsewhere { .. })
            | (Self::Elsewhere { .. }, Self::Simulator) => false,
        }
    }

    /// The key of the account.
    pub fn key(&self) -> Option<&Secret> {
        match self {
            Self::Simulator => None,
            Self::Elsewhere { key, .. } => Some(key),
        }
    }
}

// === impl Pingback ===

impl Pingback {
    /// The start of every pingback address.
    pub fn base(&self) -> String {
        format!("{}/-/pingback/", self.url.as_str().trim_end_matches('/'))
    }
}

fn check_slots(slots: AutoOr) -> Result<Slots, &'static str> {
    match slots {
        AutoOr::Auto => Ok(Slots::Auto),
        AutoOr::Number(0) => Err("expected \"auto\" or a number from 1"),
        AutoOr::Number(number) => Ok(Slots::Fixed(number as usize)),
    }
}
