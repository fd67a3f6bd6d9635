//! Stage two: what the values mean together. A [`Config`] that exists is safe to run; an unsafe one is refused here, with
//! the way to fix it.

mod access_keys;
mod admins;
mod budgets;
mod notifications;
mod opened;
mod polling;
mod pools;
mod retry;
mod sites;
mod store;
mod upstream;
mod workers;

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use domain::{
    challenge::Kind, declarations::Declarations, retry::RetryTable, token::TokenLifetime,
};
use engine::{Alerts, PoolWish};
use stores::EncryptionKey;

use super::{
    ConfigError, Environment,
    written::{Given, Key, Keys, SectionKeys as _, TlsKeys, TokenKeys, check_mode},
};

use access_keys::TakenKeys;

pub use admins::Admin;
pub use notifications::Callbacks;
pub use polling::{Polling, Schedule};
pub use sites::is_example;
pub use store::StoreUrl;
pub use upstream::{Pingback, Service, Upstream};
pub use workers::{LOCAL, Worker};

/// What the operator wants; already valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub listen: SocketAddr,
    pub hosts: Vec<String>,
    pub tls: Option<Tls>,
    /// The directory for keys and certificates the program makes; `None` with the memory store.
    pub data: Option<PathBuf>,
    pub store: StoreUrl,
    /// The key that secrets are encrypted with in both stores, and the one before it.
    pub encryption: Option<(EncryptionKey, Option<EncryptionKey>)>,
    /// The store of the history; `None` keeps it in `store`.
    pub ledger: Option<StoreUrl>,
    pub upstream: Upstream,
    /// What may be solved, and for whom.
    pub declarations: Declarations,
    pub workers: Vec<Worker>,
    pub admins: Vec<Admin>,
    pub claims: ClaimRules,
    pub polling: Polling,
    pub pools: Vec<PoolWish>,
    pub retry: RetryTable,
    pub callbacks: Callbacks,
    pub alerts: Option<Alerts>,
    /// Lifetimes that differ from those of the kind.
    pub lifetimes: BTreeMap<Kind, TokenLifetime>,
    /// What it was made from, for [`Config::needs_restart`].
    pub(crate) written: Written,
}

/// Prints nothing: the values may be secret.
#[derive(Clone, PartialEq)]
pub(crate) struct Written(Arc<Keys>);

/// The certificate the gateway shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    Files { cert: PathBuf, key: PathBuf },
    SelfSigned,
}

/// The keys before the first table that concern claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRules {
    pub hold: Duration,
    pub deadline: Duration,
    pub reuse_window: Duration,
    pub failure_window: Duration,
    pub ambiguity_budget: u32,
    /// The most solves that wait for a slot.
    pub max_queued: usize,
}

// === impl Config ===

impl Config {
    /// Where the program keeps secrets that it makes and others verify with. There is no such place on a shared store,
    /// because every gateway would make its own.
    pub fn secrets_dir(&self) -> Option<&Path> {
        self.data.as_deref().filter(|_| !self.store.is_shared())
    }

    /// The keys and tables in which `new` differs and that a reload cannot change.
    pub fn needs_restart(&self, new: &Self) -> Vec<String> {
        let keys = self.written.0.keys_that_need_restart(&new.written.0);
        let mut titles: Vec<_> = keys.into_iter().map(Key::title).collect();
        // A reload replaces a key or a certificate by another one. It does not go to another service, nor begin or end TLS.
        let moved = !self.upstream.service.is_same_place(&new.upstream.service);
        let kind = |tls: &Option<Tls>| tls.as_ref().map(std::mem::discriminant);
        let also = [("[upstream]", moved), ("[tls]", kind(&self.tls) != kind(&new.tls))];
        for (title, _) in also.iter().filter(|(_, differs)| *differs) {
            if !titles.iter().any(|named| named == title) {
                titles.push((*title).to_owned());
            }
        }
        titles
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Makes a configuration of what was written. `data` is the directory of the command line.
pub(super) fn check(
    keys: Keys,
    environment: &Environment,
    data: Option<&Path>,
) -> Result<Config, ConfigError> {
    let written = Written(Arc::new(keys.clone()));
    let upstream = upstream::check(keys.upstream, environment)?;
    let links = store::Links { environment, may_be_insecure: keys.insecure_store.value };
    let (store, data) = store::check(keys.store.url, links, data)?;
    let ledger = store::check_ledger(keys.store.ledger, &store, links)?;
    let encryption = keys.store.encryption_key.map(|keys| (keys.value.current, keys.value.old));
    let tls = check_tls(keys.tls)?;
    let simulated = upstream.service == Service::Simulator;
    let mut taken = TakenKeys::new(upstream.service.key());
    let admins = admins::check(keys.admin, &mut taken)?;
    let workers = workers::check(keys.worker, &admins, &mut taken)?;
    let secrets = keys.callbacks.secret.map(|secrets| secrets.value);
    let callbacks = Callbacks {
        previous: secrets.as_ref().and_then(|secrets| secrets.previous.clone()),
        secret: secrets.map(|secrets| secrets.current),
        hosts: keys.callbacks.hosts.value,
    };
    let can_make = data.is_some() && !store.is_shared();
    let alerts = notifications::check_alerts(keys.alerts, &callbacks, can_make)?;
    if store.is_shared() {
        upstream::check_shared(upstream.pingback.as_ref())?;
    }
    let declarations = sites::check(keys.site, keys.images, Worker::scopes(&workers), simulated)?;
    check_kinds(&upstream, &keys.tokens, &declarations)?;
    let config = Config {
        listen: check_listen(&keys.listen, tls.is_some())?,
        hosts: keys.hosts.check(check_hosts)?,
        tls,
        data,
        store,
        encryption,
        ledger,
        pools: pools::check(keys.pool, &declarations)?,
        declarations,
        workers,
        admins,
        claims: ClaimRules {
            hold: keys.hold.value,
            deadline: keys.deadline.value.0,
            reuse_window: keys.reuse_window.value,
            failure_window: keys.failure_window.check(check_failure_window)?,
            ambiguity_budget: keys.ambiguity_budget.value,
            max_queued: keys.max_queued.check(workers::check_queue)?,
        },
        polling: polling::check(keys.polling, upstream.polls_per_task, simulated)?,
        retry: retry::check(keys.retry)?,
        callbacks,
        alerts,
        lifetimes: check_lifetimes(keys.tokens)?,
        upstream,
        written,
    };
    config.check_budgets(&config.upstream.prices)?;
    Ok(config)
}

/// The kinds in tables by kind.
fn check_kinds(
    upstream: &Upstream,
    tokens: &BTreeMap<Kind, TokenKeys>,
    declared: &Declarations,
) -> Result<(), ConfigError> {
    let priced = upstream.prices.kinds.keys();
    opened::check_kinds("[upstream] price_per_1000", priced, &declared.sites)?;
    opened::check_kinds("[tokens]", tokens.keys(), &declared.sites)
}

fn check_listen(written: &Given<SocketAddr>, has_tls: bool) -> Result<SocketAddr, ConfigError> {
    let listen = written.value;
    if listen.ip().is_loopback() || has_tls {
        return Ok(listen);
    }
    Err(written.refused(format_args!(
        "{listen} can be reached from outside, where keys and tokens would travel unencrypted; \
         give --tls-cert and --tls-key (or --tls-self-signed), or listen on 127.0.0.1 behind a proxy that speaks TLS"
    )))
}

fn check_hosts(written: Vec<String>) -> Result<Vec<String>, String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    match written.iter().find(|host| host.is_empty() || !host.bytes().all(plain)) {
        None => Ok(written),
        Some(host) => Err(format!(
            "{host:?} is not a host name; write it in lower case, without scheme and port"
        )),
    }
}

fn check_tls(keys: TlsKeys) -> Result<Option<Tls>, ConfigError> {
    let refused = |what| Err(ConfigError::at("[tls]", what));
    match (keys.cert, keys.key, keys.self_signed.value) {
        (None, None, false) => Ok(None),
        (None, None, true) => Ok(Some(Tls::SelfSigned)),
        (Some(cert), Some(key), false) => {
            // A missing file is reported when it is read.
            let check =
                |key: PathBuf| if key.exists() { check_mode(&key).map(|()| key) } else { Ok(key) };
            let key = key.check(check)?;
            Ok(Some(Tls::Files { cert: cert.value, key }))
        }
        (Some(_), None, _) => refused("key is missing: cert and key are given together"),
        (None, Some(_), _) => refused("cert is missing: cert and key are given together"),
        (Some(_), Some(_), true) => refused("give either cert and key or self_signed, not both"),
    }
}

/// A key is kept for a day after its end, so it cannot replay a failure for longer.
fn check_failure_window(window: Duration) -> Result<Duration, &'static str> {
    if window > Duration::from_secs(86_400) {
        return Err(
            "is longer than the 24h that a key is kept; to replay failures as long as that, set \
                    after_failure = \"replay\" for the site",
        );
    }
    Ok(window)
}

fn check_lifetimes(
    keys: BTreeMap<Kind, TokenKeys>,
) -> Result<BTreeMap<Kind, TokenLifetime>, ConfigError> {
    let each = |(kind, keys): (Kind, TokenKeys)| {
        let (lifetime, margin) = kind.lifetime_and_margin();
        let lifetime = keys.lifetime.map_or(lifetime, |given| given.value);
        let margin = keys.margin.map_or(margin, |given| given.value);
        let life = TokenLifetime::new(lifetime, margin)
            .map_err(|why| ConfigError::at(format!("[tokens.{}]", kind.name()), why))?;
        Ok((kind, life))
    };
    keys.into_iter().map(each).collect()
}
