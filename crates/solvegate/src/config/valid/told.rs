//! What is told to others outside of any request: callbacks to workers' own addresses, alerts to the operator's.

use std::time::Duration;

use domain::secret::Secret;
use url::Url;

use super::plain;
use crate::config::{
    ConfigError,
    raw::{RawAlerts, RawCallbacks},
    secret::Reader,
};

/// How callbacks are signed and where they may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callbacks {
    /// What they are signed with; `None`: one is made, where [`super::Config::secrets_dir`] has room for it.
    pub secret: Option<Secret>,
    /// Hosts that may be private or without TLS, `host` or `host:port`.
    pub hosts: Vec<String>,
}

/// Where trouble is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alerts {
    /// The operator's address.
    pub url: Secret,
    /// More open dead letters than this are told.
    pub dead_letters: u64,
    /// The same trouble is told at most so often.
    pub cooldown: Duration,
}

const USUAL_DEAD_LETTERS: u64 = 10;
const USUAL_COOLDOWN: Duration = Duration::from_secs(15 * 60);

pub(super) fn check_callbacks(
    raw: RawCallbacks,
    secrets: &Reader<'_>,
) -> Result<Callbacks, ConfigError> {
    let secret = raw.secret.map(|raw| secrets.read("[callbacks] secret", &raw)).transpose()?;
    Ok(Callbacks { secret, hosts: raw.hosts })
}

pub(super) fn check_alerts(
    raw: RawAlerts,
    secrets: &Reader<'_>,
) -> Result<Option<Alerts>, ConfigError> {
    let place = "[alerts] url";
    let Some(url) = raw.url else {
        if raw.dead_letters.is_some() || raw.cooldown.is_some() {
            return Err(ConfigError::at(place, "is missing; say where alerts are to go"));
        }
        return Ok(None);
    };
    let url = secrets.read(place, &url)?;
    let is_address = Url::parse(url.expose())
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if !is_address {
        return Err(ConfigError::at(
            place,
            "expected an address such as https://hooks.example.com/x",
        ));
    }
    let dead_letters = raw.dead_letters.unwrap_or(USUAL_DEAD_LETTERS);
    if dead_letters == 0 {
        return Err(ConfigError::at("[alerts] dead_letters", "must be at least 1"));
    }
    let cooldown = plain::some_duration_or("[alerts] cooldown", raw.cooldown, USUAL_COOLDOWN)?;
    Ok(Some(Alerts { url, dead_letters, cooldown }))
}

/// A receiver must be able to tell our alerts from anybody's.
pub(super) fn check_signed(
    alerts: Option<&Alerts>,
    callbacks: &Callbacks,
    can_make: bool,
) -> Result<(), ConfigError> {
    if alerts.is_none() || callbacks.secret.is_some() || can_make {
        return Ok(());
    }
    let what = "is missing: alerts are signed with it, and it is made only for a gateway with a data directory and a \
                store of its own; write secret = \"env:NAME\"";
    Err(ConfigError::at("[callbacks] secret", what))
}
