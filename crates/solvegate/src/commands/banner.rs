//! The text that `serve` prints at start: the address, generated keys, and commands to copy.

use std::net::SocketAddr;

use domain::{ports::Clock as _, site::Site};

use super::{declarations, serve::CERTIFICATE};
use crate::{
    clock::SystemClock,
    config::{Config, Service, Tls},
    exit::Failure,
    keys::{self, GeneratedKeys},
    output,
};

/// A new key appears here and nowhere else.
pub(super) fn print(
    config: &Config,
    keys: &GeneratedKeys,
    local: SocketAddr,
) -> Result<(), Failure> {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let base = format!("{scheme}://{local}");
    let upstream = match &config.upstream.service {
        Service::Simulator => "simulator",
        Service::Elsewhere { url, .. } => url,
    };
    let version = env!("CARGO_PKG_VERSION");
    output::line(format_args!("solvegate {version} is listening on {base}"))?;
    output::line(format_args!("upstream: {upstream}   store: {}", config.store))?;
    let key = print_keys(config, keys)?;
    if let (None, Some(data)) = (&config.callbacks.secret, config.secrets_dir()) {
        let file = data.join(keys::CALLBACK_FILE);
        output::line(format_args!(
            "callbacks:   receivers verify them with the secret in {}",
            file.display()
        ))?;
    }
    let trust = trust(config);
    let page =
        config.declarations.sites.first().map_or("shop.example.com".into(), |s| s.rule.to_string());
    let page = page.trim_start_matches("*.");
    output::line(format_args!(
        "try it:      curl -s{trust} {base}/v1/solves -H \"Authorization: Bearer {key}\" \
         -H 'Content-Type: application/json' -H 'Prefer: wait=60' \
         -d '{{\"kind\":\"turnstile\",\"sitekey\":\"0x4AAA\",\"pageurl\":\"https://{page}/login\"}}'"
    ))?;
    output::line(format_args!("status page: {base}/"))?;
    print_ends(&config.declarations.sites)?;
    match &config.upstream.service {
        Service::Simulator => output::line(format_args!(
            "real key:    declare your sites in solvegate.toml, then CAPTCHAAI_API_KEY=… solvegate serve"
        )),
        Service::Elsewhere { .. } if config.declarations.sites.is_empty() => {
            output::line(format_args!(
                "sites:       none declared, so every page is refused; add a [[site]] with host and basis to solvegate.toml"
            ))
        }
        Service::Elsewhere { .. } => Ok(()),
    }
}

/// Names the declarations that should be reviewed.
fn print_ends(sites: &[Site]) -> Result<(), Failure> {
    let now = SystemClock::start().now();
    for site in sites.iter().filter(|site| declarations::ends_soon(site, now)) {
        let last = site.expires.map_or_else(String::new, |day| day.to_string());
        output::line(format_args!("ends soon:   {} is declared until {last}", site.rule))?;
    }
    match declarations::endless(sites).as_str() {
        "" => Ok(()),
        hosts => {
            output::line(format_args!("no end:      {hosts}; write `expires` in each [[site]]"))
        }
    }
}

/// Prints new keys; returns the worker key for the curl command, or a placeholder.
fn print_keys(config: &Config, keys: &GeneratedKeys) -> Result<String, Failure> {
    let mut worker_key = "$WORKER_KEY".to_owned();
    if let Some(made) = &keys.worker {
        match (&made.fresh, &config.data) {
            (Some(key), _) => {
                key.expose().clone_into(&mut worker_key);
                output::line(format_args!("worker key:  {worker_key}   (new, shown only once)"))?;
            }
            (None, Some(data)) => {
                let file = data.join(keys::WORKER_FILE);
                output::line(format_args!(
                    "worker key:  shown at the first start (lost? delete {} and restart to get a new one)",
                    file.display()
                ))?;
            }
            (None, None) => {}
        }
    }
    if let Some(key) = keys.admin.as_ref().and_then(|made| made.fresh.as_ref()) {
        output::line(format_args!("admin key:   {}   (new, shown only once)", key.expose()))?;
    }
    Ok(worker_key)
}

fn trust(config: &Config) -> String {
    match (&config.tls, &config.data) {
        (Some(Tls::SelfSigned), Some(data)) => {
            format!(" --cacert {}", data.join(CERTIFICATE).display())
        }
        (Some(Tls::SelfSigned), None) => " -k".into(),
        (Some(Tls::Files { .. }) | None, _) => String::new(),
    }
}
