//! Callbacks to workers and alerts to the operator.

use domain::secret::Secret;
use engine::Alerts;
use url::Url;

use crate::config::{
    ConfigError,
    written::{AlertsKeys, WorkerCallbacksKeys},
};

/// How callbacks are signed and where they may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callbacks {
    /// `None`: the gateway makes one in [`super::Config::secrets_dir`].
    pub secret: Option<Secret>,
    /// The secret before it, while receivers change to the new one.
    pub previous: Option<Secret>,
    /// Hosts that callbacks may go to, also private or without TLS, `host` or `host:port`.
    pub hosts: Vec<String>,
}

/// Callbacks of one worker. What is not given is as in [`Callbacks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCallbacks {
    /// The secret, and the one before it.
    pub secret: Option<(Secret, Option<Secret>)>,
    pub hosts: Option<Vec<String>>,
}

/// `None`: the worker's callbacks are as all others.
pub(super) fn of_worker(keys: WorkerCallbacksKeys) -> Option<WorkerCallbacks> {
    let secret = keys.secret.map(|pair| (pair.value.current, pair.value.previous));
    let hosts = keys.hosts.map(|hosts| hosts.value);
    (secret.is_some() || hosts.is_some()).then_some(WorkerCallbacks { secret, hosts })
}

/// `can_make` says whether the gateway can make the secret that alerts are signed with.
pub(super) fn check_alerts(
    keys: AlertsKeys,
    callbacks: &Callbacks,
    can_make: bool,
) -> Result<Option<Alerts>, ConfigError> {
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
    // Alerts without a signature could come from anybody.
    if callbacks.secret.is_none() && !can_make {
        let what = "is missing: alerts are signed with it, and the gateway makes one only if it has a data directory and \
                    does not share its store; write secret = \"env:NAME\"";
        return Err(ConfigError::at("[callbacks] secret", what));
    }
    Ok(Some(Alerts {
        url: url.value,
        dead_letters: keys.dead_letters.value.get(),
        cooldown: keys.cooldown.value.0,
    }))
}
