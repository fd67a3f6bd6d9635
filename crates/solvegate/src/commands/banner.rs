//! The text that `serve` prints at start: the address, generated keys, and commands to copy.

use std::net::SocketAddr;

use domain::{ports::Clock as _, site::Site};

use super::{declarations, serve::CERTIFICATE};
use crate::{
    clock::SystemClock,
    config::{Config, Service, Tls},
    exit::Failure,
    keys::{self, FreshKey, GeneratedKey, GeneratedKeys},
    output,
};

/// A new key appears here and nowhere else, or in the file that is named here.
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
         -H 'Idempotency-Key: order-1' \
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

/// Prints new keys, or where they are; returns the worker key for the curl command, or a placeholder.
fn print_keys(config: &Config, keys: &GeneratedKeys) -> Result<String, Failure> {
    let worker = print_role("worker key:  ", config, keys.worker.as_ref(), keys::WORKER_FILE)?;
    print_role("admin key:   ", config, keys.admin.as_ref(), keys::ADMIN_FILE)?;
    Ok(worker.unwrap_or_else(|| "$WORKER_KEY".to_owned()))
}

/// Prints one of the keys; returns how a shell writes it, if it is new.
fn print_role(
    title: &str,
    config: &Config,
    key: Option<&GeneratedKey>,
    file: &str,
) -> Result<Option<String>, Failure> {
    match (key.map(|made| &made.fresh), &config.data) {
        (Some(Some(key)), _) => print_key(title, key).map(Some),
        (Some(None), Some(data)) => {
            let file = data.join(file);
            output::line(format_args!(
                "{title}made at the first start (lost? delete {} and restart to get a new one)",
                file.display()
            ))?;
            Ok(None)
        }
        (Some(None), None) | (None, _) => Ok(None),
    }
}

/// Prints a new key, or its file; returns how a shell writes the key.
fn print_key(title: &str, key: &FreshKey) -> Result<String, Failure> {
    match key {
        FreshKey::Shown(key) => {
            output::line(format_args!("{title}{}   (new, shown only once)", key.expose()))?;
            Ok(key.expose().to_owned())
        }
        FreshKey::Written(path) => {
            let path = path.display();
            output::line(format_args!("{title}in {path}   (new; read it, then delete the file)"))?;
            Ok(format!("$(cat {path})"))
        }
    }
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
