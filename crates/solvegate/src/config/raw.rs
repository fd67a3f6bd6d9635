//! Stage one: what was written, typed but not yet understood. Every value is optional; nothing has a default here.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{ConfigError, Flags, environment};

/// `solvegate.toml`, the environment and the flags together.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) listen: Option<String>,
    pub(super) hosts: Vec<String>,
    pub(super) hold: Option<String>,
    pub(super) deadline: Option<String>,
    pub(super) reuse_window: Option<String>,
    pub(super) ambiguity_budget: Option<u32>,
    pub(super) upstream: RawUpstream,
    pub(super) store: RawStore,
    pub(super) admin: RawAdmin,
    pub(super) worker: Vec<RawWorker>,
    pub(super) site: Vec<RawSite>,
    pub(super) pool: Vec<RawPool>,
    pub(super) polling: RawPolling,
    pub(super) retry: RawRetry,
    pub(super) callbacks: RawCallbacks,
    pub(super) alerts: RawAlerts,
    pub(super) images: RawImages,
    pub(super) tokens: BTreeMap<String, RawShelfLife>,
    pub(super) tls: RawTls,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawUpstream {
    pub(super) url: Option<String>,
    pub(super) key: Option<RawSecret>,
    pub(super) slots: Option<RawAutoOr>,
    pub(super) submits_per_second: Option<u32>,
    pub(super) polls_per_task: Option<u32>,
    pub(super) price_per_1000: BTreeMap<String, RawMoney>,
    pub(super) plan: Option<toml::Table>,
    pub(super) pingback_url: Option<String>,
    pub(super) pingback_secret: Option<RawSecret>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawStore {
    pub(super) url: Option<RawSecret>,
    pub(super) ledger: Option<RawSecret>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAdmin {
    pub(super) key: Option<RawSecret>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawWorker {
    pub(super) name: Option<String>,
    pub(super) key: Option<RawSecret>,
    pub(super) project: Option<String>,
    pub(super) budget: RawBudget,
    pub(super) rate: Option<String>,
    pub(super) sites: Option<Vec<String>>,
    pub(super) priority: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBudget {
    pub(super) solves_per_day: Option<u64>,
    pub(super) cost_per_day: Option<RawMoney>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSite {
    pub(super) host: Option<String>,
    pub(super) basis: Option<String>,
    pub(super) expires: Option<RawDay>,
    pub(super) reuse: Option<String>,
    pub(super) ambiguous: Option<String>,
    pub(super) key_ignores_proxy: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPool {
    pub(super) kind: Option<String>,
    pub(super) sitekey: Option<String>,
    pub(super) pageurl: Option<String>,
    pub(super) params: BTreeMap<String, RawParam>,
    pub(super) level: Option<RawAutoOr>,
    pub(super) max: Option<u32>,
    pub(super) waste: Option<f64>,
    pub(super) project: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPolling {
    pub(super) mode: Option<String>,
    pub(super) first: Option<String>,
    pub(super) interval: Option<String>,
    pub(super) min_gap: Option<String>,
    pub(super) batch: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRetry {
    pub(super) profile: Option<String>,
    pub(super) base: Option<String>,
    pub(super) cap: Option<String>,
    pub(super) most: Option<u32>,
    pub(super) jitter: Option<String>,
    pub(super) codes: BTreeMap<String, RawOverride>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOverride {
    pub(super) class: Option<String>,
    pub(super) max: Option<u32>,
    pub(super) backoff: Option<bool>,
    pub(super) wait: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawCallbacks {
    pub(super) secret: Option<RawSecret>,
    pub(super) hosts: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAlerts {
    pub(super) url: Option<RawSecret>,
    pub(super) dead_letters: Option<u64>,
    pub(super) cooldown: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawImages {
    pub(super) basis: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawShelfLife {
    pub(super) lifetime: Option<String>,
    pub(super) margin: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTls {
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) self_signed: Option<bool>,
}

/// `"auto"` or a number.
#[derive(Debug)]
pub(super) enum RawAutoOr {
    Word(String),
    Number(u32),
}

/// A parameter of a challenge: a text, a number or a boolean, as `in.php` has it. It may be a secret, such as a proxy.
pub(super) struct RawParam(pub(super) String);

/// A secret, or where it is to be found. A wrong type is refused without repeating the value.
pub(super) struct RawSecret(pub(super) String);

/// An amount, as it was written.
#[derive(Debug)]
pub(super) struct RawMoney(pub(super) String);

/// A day, as a TOML date or as text.
#[derive(Debug)]
pub(super) struct RawDay(pub(super) String);

// === impl Raw ===

impl Raw {
    /// The file was checked before: what is wrong now came from the environment.
    pub(super) fn from_table(table: toml::Table) -> Result<Self, ConfigError> {
        serde_path_to_error::deserialize(table).map_err(|error| {
            let path = error.path().to_string().replace(['[', ']'], ".").replace("..", ".");
            let name = path.trim_matches('.').replace('.', "__").to_ascii_uppercase();
            environment::variable(&name, error.inner().message().to_owned())
        })
    }

    pub(super) fn apply(&mut self, flags: &Flags) {
        let over = |old: &mut Option<String>, new: &Option<String>| {
            if new.is_some() {
                old.clone_from(new);
            }
        };
        over(&mut self.listen, &flags.listen);
        over(&mut self.upstream.url, &flags.upstream);
        if let Some(url) = &flags.store {
            self.store.url = Some(RawSecret(url.clone()));
        }
        if let Some(url) = &flags.ledger {
            self.store.ledger = Some(RawSecret(url.clone()));
        }
        if flags.tls_cert.is_some() || flags.tls_key.is_some() || flags.tls_self_signed {
            self.tls = RawTls {
                cert: flags.tls_cert.clone(),
                key: flags.tls_key.clone(),
                self_signed: Some(flags.tls_self_signed),
            };
        }
    }
}

// === impl RawAutoOr, RawParam, RawSecret, RawMoney, RawDay ===

impl<'de> Deserialize<'de> for RawAutoOr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(word) => Ok(Self::Word(word)),
            toml::Value::Integer(number) => u32::try_from(number)
                .map(Self::Number)
                .map_err(|_| D::Error::custom("expected a whole number, or \"auto\"")),
            toml::Value::Float(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => {
                Err(D::Error::custom("expected a whole number, or \"auto\""))
            }
        }
    }
}

impl<'de> Deserialize<'de> for RawParam {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self(text)),
            toml::Value::Integer(number) => Ok(Self(number.to_string())),
            toml::Value::Float(number) => Ok(Self(number.to_string())),
            toml::Value::Boolean(flag) => Ok(Self(u8::from(flag).to_string())),
            toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => {
                Err(D::Error::custom("expected a text, a number or a boolean"))
            }
        }
    }
}

impl fmt::Debug for RawParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl<'de> Deserialize<'de> for RawSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let text = value.as_str().map(str::to_owned);
        text.map(Self).ok_or_else(|| {
            D::Error::custom("expected a string: \"env:NAME\", \"file:PATH\" or the secret itself")
        })
    }
}

impl fmt::Debug for RawSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl<'de> Deserialize<'de> for RawMoney {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::Float(amount) => Ok(Self(amount.to_string())),
            toml::Value::Integer(amount) => Ok(Self(amount.to_string())),
            toml::Value::String(amount) => Ok(Self(amount)),
            toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => Err(D::Error::custom("expected an amount such as 1.5")),
        }
    }
}

impl<'de> Deserialize<'de> for RawDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(day) => Ok(Self(day)),
            toml::Value::Datetime(day) => Ok(Self(day.to_string())),
            toml::Value::Float(_)
            | toml::Value::Integer(_)
            | toml::Value::Boolean(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => {
                Err(D::Error::custom("expected a day such as \"2027-06-30\""))
            }
        }
    }
}
