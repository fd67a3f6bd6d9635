//! The front doors: HTTP in, claims to the engine, answers out. No business rule lives here.
//!
//! # Layout, in the order a request meets it
//! - [`serve`]: accept loop, caps, TLS, drain (`accept`, `tls`); `guard` reads along for smuggling and slowness
//! - `threshold`: the one layer around every route: HTTP rules, panics, headers, the log line
//! - `caller`, [`Workers`]: who is calling; `body`: how a body is read
//! - `compat`: `in.php` and `res.php`; `v1`: the JSON API; `pingback`: the provider's calls; `health`, `status`: for
//!   operators and people
//! - `error`: the only place where an error becomes a status

mod accept;
mod body;
mod caller;
mod compat;
mod error;
mod guard;
mod health;
mod limits;
mod peer;
mod pingback;
mod pool_size;
mod status;
mod threshold;
mod tls;
mod v1;
mod worker;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router, middleware,
    routing::{any, get},
};
use domain::{claim::Claim, id::ClaimId, ports::Scope, secret::Secret, time::Timestamp};
use engine::{Engine, FetchRefusal, Outcome};

pub use accept::{ServeConfig, serve};
pub use limits::Limits;
pub use pool_size::{BadPoolSize, PoolSize};
pub use tls::{BadTls, SelfSigned, TlsMaterial};
pub use worker::{BadKey, BadRate, BadWorkers, KeyDigest, Rate, Worker, Workers};

use peer::Peer;
use worker::Failures;

/// How the doors are set up.
#[derive(Clone, Debug)]
pub struct DoorsConfig {
    /// Who may call.
    pub workers: Workers,
    /// The digest of the admin key; without one nobody is admin.
    pub admin: Option<KeyDigest>,
    /// How long `res.php` holds an answer back for a solve about to land; zero for never. Some clients hang up at 5 s.
    pub hold: Duration,
    /// Bounds.
    pub limits: Limits,
    /// Host names we answer to, besides `localhost` and IP addresses: lower case, without port.
    pub allowed_hosts: Vec<String>,
    /// What the addresses of pingbacks are proved with; without it there is no such path.
    pub pingback: Option<Secret>,
}

/// The doors. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Doors(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    config: DoorsConfig,
    failures: Failures,
    /// The provider's calls, by address.
    pingbacks: Failures,
    panics: AtomicU64,
}

// === impl DoorsConfig ===

impl Default for DoorsConfig {
    fn default() -> Self {
        Self {
            workers: Workers::default(),
            admin: None,
            hold: Duration::from_secs(4),
            limits: Limits::default(),
            allowed_hosts: Vec::new(),
            pingback: None,
        }
    }
}

// === impl Doors ===

impl Doors {
    /// Opens the doors in front of an engine.
    pub fn new(engine: Engine, config: DoorsConfig) -> Self {
        let failures = Failures::new(config.limits.wrong_keys);
        let pingbacks = Failures::new(config.limits.pingbacks);
        let panics = AtomicU64::new(0);
        Self(Arc::new(Inner { engine, config, failures, pingbacks, panics }))
    }

    /// Who may call; replaceable while running.
    pub fn workers(&self) -> &Workers {
        &self.0.config.workers
    }

    /// Handlers that panicked so far: always 0 in a build that is right.
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn config(&self) -> &DoorsConfig {
        &self.0.config
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.config.limits
    }

    pub(crate) fn failures(&self) -> &Failures {
        &self.0.failures
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.engine.clock().now()
    }

    pub(crate) fn count_panic(&self) {
        self.0.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads a claim, waiting up to `wait`, but not past the end of a drain: whoever waits then is told how it stands.
    pub(crate) async fn fetch(
        &self,
        peer: Option<&Peer>,
        scope: &Scope,
        id: ClaimId,
        wait: Duration,
    ) -> Result<Outcome, FetchRefusal> {
        let engine = self.engine();
        let Some(peer) = peer.filter(|_| !wait.is_zero()) else {
            return engine.fetch(scope, id, wait).await;
        };
        let grace = self.limits().drain.saturating_sub(LAST_WORDS);
        let told = tokio::select! {
            biased;
            told = engine.fetch(scope, id, wait) => Some(told),
            () = peer.last_call(grace) => None,
        };
        match told {
            Some(told) => told,
            None => engine.fetch(scope, id, Duration::ZERO).await,
        }
    }
}

/// The claim an outcome is about.
pub(crate) fn claim_of(outcome: &Outcome) -> &Claim {
    let (Outcome::Served { claim, .. }
    | Outcome::Waiting { claim, .. }
    | Outcome::Failed(claim)
    | Outcome::Lapsed(claim)
    | Outcome::Withdrawn(claim)
    | Outcome::Expired(claim)) = outcome;
    claim
}

/// What is left of a drain to write the last answers in.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// All routes with the one layer around them.
///
/// Everything but the health checks, the status page and pingbacks wants a key; a path we do not know wants one too, so that a
/// caller without one learns nothing about which paths exist.
pub fn router(doors: &Doors) -> Router {
    let layer = middleware::from_fn_with_state(doors.clone(), threshold::cross);
    Router::new()
        .route("/in.php", get(compat::submit).post(compat::submit))
        .route("/res.php", get(compat::fetch).post(compat::fetch))
        .merge(v1::routes())
        .route("/-/pingback/{name}", get(pingback::take).post(pingback::take))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/", get(status::page))
        .route("/style.css", get(status::style))
        .route("/admin/{*rest}", any(v1::admin_area))
        .fallback(caller::unknown_path)
        .method_not_allowed_fallback(caller::wrong_method)
        // Outermost, so that no answer leaves without headers and log line and no handler runs before the HTTP rules.
        .layer(layer)
        .with_state(doors.clone())
}
