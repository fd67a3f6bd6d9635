//! Stage two: what was written, understood. A [`Config`] that exists is safe to run; what would not be is refused
//! here, with the way to put it right.

mod people;
mod plain;
mod polling;
mod pools;
mod retry;
mod sites;
mod store;
mod told;
mod upstream;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use domain::{challenge::Kind, retry::RetryTable, secret::Secret, token::ShelfLife};
use engine::PoolWish;

use super::{
    ConfigError,
    raw::{Raw, RawTls},
    secret::Reader,
};

pub use people::{Budget, Worker};
pub use plain::read_duration;
pub use polling::{Polling, Schedule};
pub use sites::Declarations;
pub use store::StoreUrl;
pub use told::{Alerts, Callbacks};
pub use upstream::{Pingback, Service, Upstream};

/// Where the gateway listens when nothing is said.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8402);

/// What the operator wants; already valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the gateway listens.
    pub listen: SocketAddr,
    /// Host names it answers to, besides `localhost` and addresses.
    pub hosts: Vec<String>,
    /// How it speaks TLS.
    pub tls: Option<Tls>,
    /// The directory for what the program itself keeps; `None` with the memory store.
    pub data: Option<PathBuf>,
    /// Where decisions are made.
    pub store: StoreUrl,
    /// Where history is kept; `None`: in the store.
    pub ledger: Option<StoreUrl>,
    /// The paid service, or the simulator.
    pub upstream: Upstream,
    /// Which pages may be solved for.
    pub declarations: Declarations,
    /// Who may ask.
    pub workers: Vec<Worker>,
    /// Who may see and do everything.
    pub admin: Option<Secret>,
    /// How claims are treated.
    pub claims: ClaimRules,
    /// When tasks are asked for.
    pub polling: Polling,
    /// Standing orders.
    pub pools: Vec<PoolWish>,
    /// What failures mean.
    pub retry: RetryTable,
    /// How callbacks are signed and where they may go.
    pub callbacks: Callbacks,
    /// Where trouble is told.
    pub alerts: Option<Alerts>,
    /// Lifetimes that differ from the kind's own.
    pub shelf_lives: BTreeMap<Kind, ShelfLife>,
}

/// How the gateway speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// With a certificate of the operator's.
    Files {
        /// The chain, PEM.
        cert: PathBuf,
        /// Its key, PEM.
        key: PathBuf,
    },
    /// With a certificate made at start.
    SelfSigned,
}

/// How claims are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRules {
    /// How long `res.php` holds its answer.
    pub hold: Duration,
    /// How long a claim waits when it does not say.
    pub deadline: Duration,
    /// How long a keyless claim's answer is given again.
    pub reuse_window: Duration,
    /// AUTHORISE events a day.
    pub ambiguity_budget: u32,
}

// === impl Config ===

impl Config {
    /// Where secrets are kept that the program makes and others verify with. Nowhere, where other gateways may use the
    /// store too: each would make one of its own.
    pub fn secrets_dir(&self) -> Option<&Path> {
        self.data.as_deref().filter(|_| !self.store.is_shared())
    }

    fn stores(&self) -> (&StoreUrl, Option<&StoreUrl>, Option<&Path>) {
        (&self.store, self.ledger.as_ref(), self.data.as_deref())
    }

    /// What a reload cannot change, as far as `new` differs in it.
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let parts = [
            ("listen", self.listen != new.listen),
            ("hosts", self.hosts != new.hosts),
            ("[admin]", self.admin != new.admin),
            ("[tls]", self.tls != new.tls),
            ("[store]", self.stores() != new.stores()),
            ("[upstream]", self.upstream != new.upstream),
            ("hold, deadline, reuse_window or ambiguity_budget", self.claims != new.claims),
            ("[polling]", self.polling != new.polling),
            ("[[pool]]", self.pools != new.pools),
            ("[retry]", self.retry != new.retry),
            ("[callbacks]", self.callbacks != new.callbacks),
            ("[alerts]", self.alerts != new.alerts),
            ("[tokens]", self.shelf_lives != new.shelf_lives),
        ];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part).collect()
    }
}

/// Understands what was written.
pub(super) fn check(
    raw: Raw,
    secrets: &Reader<'_>,
    data: Option<&Path>,
) -> Result<Config, ConfigError> {
    refuse_later_features(&raw)?;
    let upstream = upstream::check(raw.upstream, secrets)?;
    let (store, data) = store::check(&raw.store, secrets, data)?;
    let ledger = store::check_ledger(&raw.store, &store, secrets)?;
    let tls = check_tls(raw.tls)?;
    let simulated = upstream.service == Service::Simulator;
    let admin = people::check_admin(raw.admin, secrets)?;
    let workers = people::check_workers(raw.worker, admin.as_ref(), secrets)?;
    let claims = ClaimRules {
        hold: plain::duration_or("hold", raw.hold, Duration::from_secs(4))?,
        deadline: plain::some_duration_or("deadline", raw.deadline, Duration::from_secs(180))?,
        reuse_window: plain::duration_or(
            "reuse_window",
            raw.reuse_window,
            Duration::from_secs(60),
        )?,
        ambiguity_budget: raw.ambiguity_budget.unwrap_or(50),
    };
    let callbacks = told::check_callbacks(raw.callbacks, secrets)?;
    let alerts = told::check_alerts(raw.alerts, secrets)?;
    let can_make = data.is_some() && !store.is_shared();
    told::check_signed(alerts.as_ref(), &callbacks, can_make)?;
    if store.is_shared() {
        upstream::check_shared(upstream.pingback.as_ref())?;
    }
    let declarations = sites::check(raw.site, raw.images, simulated)?;
    Ok(Config {
        listen: check_listen(raw.listen, tls.is_some())?,
        hosts: check_hosts(raw.hosts)?,
        tls,
        data,
        store,
        ledger,
        pools: pools::check(raw.pool, &declarations)?,
        declarations,
        workers,
        admin,
        claims,
        polling: polling::check(raw.polling, upstream.polls_per_task, simulated)?,
        retry: retry::check(raw.retry)?,
        callbacks,
        alerts,
        shelf_lives: plain::shelf_lives(raw.tokens)?,
        upstream,
    })
}

/// Keys of the contract whose feature is not in this release: one clear sentence instead of silence.
fn refuse_later_features(raw: &Raw) -> Result<(), ConfigError> {
    let refusals = [(
        raw.upstream.plan.is_some(),
        "[upstream] plan",
        "cost per slot-second is not in this release; use price_per_1000 or remove the key",
    )];
    match refusals.into_iter().find(|(given, _, _)| *given) {
        Some((_, place, what)) => Err(ConfigError::at(place, what)),
        None => Ok(()),
    }
}

fn check_listen(written: Option<String>, has_tls: bool) -> Result<SocketAddr, ConfigError> {
    let Some(written) = written else { return Ok(DEFAULT_LISTEN) };
    let listen: SocketAddr = written.parse().map_err(|_| {
        ConfigError::at("listen", format!("{written:?} is not an address such as 127.0.0.1:8402"))
    })?;
    if listen.ip().is_loopback() || has_tls {
        return Ok(listen);
    }
    Err(ConfigError::at(
        "listen",
        format!(
            "{listen} can be reached from outside, where keys and tokens would travel in the clear; \
             give --tls-cert and --tls-key (or --tls-self-signed), or listen on 127.0.0.1 behind a proxy that speaks TLS"
        ),
    ))
}

fn check_hosts(written: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    match written.iter().find(|host| host.is_empty() || !host.bytes().all(plain)) {
        None => Ok(written),
        Some(host) => Err(ConfigError::at(
            "hosts",
            format!("{host:?} is not a host name; write it in lower case, without scheme and port"),
        )),
    }
}

fn check_tls(raw: RawTls) -> Result<Option<Tls>, ConfigError> {
    let refused = |what| Err(ConfigError::at("[tls]", what));
    match (raw.cert, raw.key, raw.self_signed.unwrap_or(false)) {
        (None, None, false) => Ok(None),
        (None, None, true) => Ok(Some(Tls::SelfSigned)),
        (Some(cert), Some(key), false) => Ok(Some(Tls::Files { cert, key })),
        (Some(_), None, _) | (None, Some(_), _) => refused("cert and key are given together"),
        (Some(_), Some(_), true) => refused("give either cert and key or self_signed, not both"),
    }
}
