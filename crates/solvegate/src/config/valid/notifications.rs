//! Callbacks to workers and alerts to the operator.

use std::time::Duration;

use domain::secret::Secret;
use url::Url;

use crate::config::{
    ConfigError,
    written::{AlertsKeys, CallbacksKeys},
};

/// How callbacks are signed and where they may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callbacks {
    /// `None`: the gateway makes one in [`super::Config::secrets_dir`].
    pub secret: Option<Secret>,
    /// Hosts that may be private or without TLS, `host` or `host:port`.
    pub hosts: Vec<String>,
}

/// Where alerts go, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alerts {
    pub url: Secret,
    pub dead_letters: u64,
    pub cooldown: Duration,
}

pub(super) fn check_callbacks(keys: CallbacksKeys) -> Callbacks {
    Callbacks { secret: keys.secret.map(|secret| secret.value), hosts: keys.hosts.value }
}

pub(super) fn check_alerts(keys: AlertsKeys) -> Result<Option<Alerts>, ConfigError> {
    let Some(url) = keys.url else {
        if keys.dead_letters.is_written || keys.cooldown.is_written {
            return Err(ConfigError::at("[alerts] url", "is missing; say where alerts are to go"));
        }
        return Ok(None);
    };
    let is_address = Url::parse(url.value.expose())
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if !is_address {
        return Err(url.refused("expected an address such as https://hooks.example.com/x"));
    }
    Ok(Some(Alerts {
        url: url.value,
        dead_letters: keys.dead_letters.value.get(),
        cooldown: keys.cooldown.value.0,
    }))
}

/// Alerts without a signature could come from anybody.
pub(super) fn check_signed(
    alerts: Option<&Alerts>,
    callbacks: &Callbacks,
    can_make: bool,
) -> Result<(), ConfigError> {
    if alerts.is_none() || callbacks.secret.is_some() || can_make {
        return Ok(());
    }
    let what = "is missing: alerts are signed with it, and the gateway makes one only if it has a data directory and does \
                not share its store; write secret = \"env:NAME\"";
    Err(ConfigError::at("[callbacks] secret", what))
}
