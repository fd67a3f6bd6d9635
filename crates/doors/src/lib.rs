//! The doors: the HTTP APIs of the gateway. They parse requests, hand claims to the engine and write responses; business
//! rules are elsewhere.
//!
//! # Layout, in the order of a request
//! - [`serve`]: accept loop, connection limits, TLS, drain (`accept`, `connection_limit`, `tls`)
//! - `guard`: detects request smuggling and slow clients on the socket
//! - `middleware`: the one layer around every route: HTTP rules, panics, headers, the access log
//! - `caller`, [`Workers`], [`Admins`], `attempt_limiter`: authentication; `body`: reading a body;
//!   `strangers`, `in_flight`: what the bodies of callers without a key, and of one worker, may take
//! - `compat`: `in.php` and `res.php`; `v1`: the JSON API; `pingback`: the provider's calls; `health`, `status`: for
//!   operators
//! - `long_poll`: waiting for a claim; `error`: the only place where an error becomes a status

mod accept;
mod admin;
mod attempt_limiter;
mod body;
mod caller;
mod compat;
mod connection_limit;
mod ended;
mod error;
mod guard;
mod health;
mod in_flight;
mod limits;
mod long_poll;
mod middleware;
mod peer;
mod pingback;
mod status;
mod strangers;
#[cfg(feature = "test-util")]
pub mod test_util;
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
    Router,
    routing::{any, get},
};
use domain::{money::Currency, secret::Secret, time::Timestamp};
use engine::Engine;

pub use accept::{ServeConfig, serve};
pub use admin::{Admin, Admins, BadAdmins, CheckedAdmins};
pub use domain::key::KeyDigest;
pub use limits::Limits;
pub use tls::{BadTls, SelfSigned, TlsMaterial};
pub use v1::site_json;
pub use worker::{BadWorkers, Worker, Workers};

use attempt_limiter::AttemptLimiter;
use in_flight::BodiesInFlight;
use strangers::Strangers;

#[derive(Clone, Debug)]
pub struct DoorsConfig {
    pub workers: Workers,
    /// Without any there is no admin access.
    pub admins: Admins,
    /// How long `res.php` waits for an answer before it replies "not ready"; zero to reply at once. Some clients time out
    /// after 5 s.
    pub hold: Duration,
    pub limits: Limits,
    /// Accepted `Host` names besides `localhost` and IP addresses: lower case, without port.
    pub allowed_hosts: Vec<String>,
    /// The currency of all amounts; shown, never converted.
    pub currency: Option<Currency>,
    /// Verifies the addresses of pingbacks; without it the route answers 404.
    pub pingback: Option<Secret>,
}

/// The doors. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Doors(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    config: DoorsConfig,
    wrong_keys: AttemptLimiter,
    /// Bounds the log lines about wrong keys, from all addresses together.
    login_lines: AttemptLimiter,
    pingbacks: AttemptLimiter,
    strangers: Strangers,
    bodies_in_flight: BodiesInFlight,
    panics: AtomicU64,
}

// === impl DoorsConfig ===

impl Default for DoorsConfig {
    fn default() -> Self {
        Self {
            workers: Workers::default(),
            admins: Admins::default(),
            hold: Duration::from_secs(4),
            limits: Limits::default(),
            allowed_hosts: Vec::new(),
            currency: None,
            pingback: None,
        }
    }
}

// === impl Doors ===

impl Doors {
    pub fn new(engine: Engine, config: DoorsConfig) -> Self {
        let wrong_keys = AttemptLimiter::new(config.limits.wrong_keys);
        let login_lines = AttemptLimiter::new(config.limits.login_lines);
        let pingbacks = AttemptLimiter::new(config.limits.pingbacks);
        let panics = AtomicU64::new(0);
        let strangers = Strangers::new(config.limits);
        Self(Arc::new(Inner {
            engine,
            config,
            wrong_keys,
            login_lines,
            pingbacks,
            strangers,
            bodies_in_flight: BodiesInFlight::default(),
            panics,
        }))
    }

    /// The workers; a reload replaces them while the gateway runs.
    pub fn workers(&self) -> &Workers {
        &self.0.config.workers
    }

    /// The admins; a reload replaces them while the gateway runs.
    pub fn admins(&self) -> &Admins {
        &self.0.config.admins
    }

    /// How many handlers have panicked: 0 in a correct build.
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

    pub(crate) fn strangers(&self) -> &Strangers {
        &self.0.strangers
    }

    pub(crate) fn bodies_in_flight(&self) -> &BodiesInFlight {
        &self.0.bodies_in_flight
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.engine.clock().now()
    }
}

/// All routes, wrapped in the middleware.
///
/// Every path but the health checks, the status page and pingbacks needs a key. Unknown paths need one too, so that a caller
/// without a key cannot find out which paths exist.
pub fn router(doors: &Doors) -> Router {
    let layer = axum::middleware::from_fn_with_state(doors.clone(), middleware::handle_request);
    Router::new()
        .route("/in.php", get(compat::submit).post(compat::submit))
        .route("/res.php", get(compat::fetch).post(compat::fetch))
        .merge(v1::routes())
        .route("/-/pingback/{name}", get(pingback::receive).post(pingback::receive))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/", get(status::page))
        .route("/style.css", get(status::style))
        .route("/admin/{*rest}", any(v1::admin_area))
        .fallback(caller::unknown_path)
        .method_not_allowed_fallback(caller::wrong_method)
        // Outermost, so that every response has its headers and its log line, and the HTTP rules run before any handler.
        .layer(layer)
        .with_state(doors.clone())
}
