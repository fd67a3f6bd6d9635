//! Who is calling: a key becomes a worker or the admin, or nobody. Both doors ask here; only the way a key is shown differs.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use domain::ports::Scope;
use url::form_urlencoded;

use crate::{
    Doors,
    error::Refusal,
    peer::Peer,
    worker::{KeyDigest, Known},
};

/// Someone with a key.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    /// `None` when the router is used without the accept loop.
    pub(crate) peer: Option<Peer>,
}

/// What the key opens.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// A worker's own records, and claims.
    Worker(Arc<Known>),
    /// Everybody's records.
    Admin,
}

/// A caller with a worker's key.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCaller {
    pub(crate) known: Arc<Known>,
    pub(crate) peer: Option<Peer>,
}

/// A caller with the admin's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminCaller;

/// Why a key opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoEntry {
    /// Missing, or no key can look like this.
    Malformed,
    /// Nobody's.
    Unknown,
    /// Nobody's, once too often from this address.
    TooMany(Duration),
}

/// Where the log line finds out who called; put into the request by threshold.rs, filled in here.
#[derive(Clone, Debug, Default)]
pub(crate) struct CalledBy(pub(crate) Arc<OnceLock<String>>);

// === impl Doors ===

impl Doors {
    /// Finds out whose key this is.
    pub(crate) fn identify(&self, key: Option<&str>, peer: Option<&Peer>) -> Result<Role, NoEntry> {
        // A text of the wrong form is no guess and is not counted as one.
        let key = key.and_then(|key| KeyDigest::of(key).ok()).ok_or(NoEntry::Malformed)?;
        if let Some(known) = self.workers().find(key) {
            return Ok(Role::Worker(known));
        }
        if self.config().admin.is_some_and(|admin| admin.is(key)) {
            return Ok(Role::Admin);
        }
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = peer.map_or(nowhere, Peer::address);
        match self.failures().count(address, self.now()) {
            Ok(()) => Err(NoEntry::Unknown),
            Err(wait) => Err(NoEntry::TooMany(wait)),
        }
    }
}

// === impl Caller ===

impl Caller {
    /// Whose records it may see.
    pub(crate) fn scope(&self) -> Scope {
        match &self.role {
            Role::Worker(known) => Scope::Worker(known.worker.name.clone()),
            Role::Admin => Scope::All,
        }
    }

    fn of(parts: &Parts, doors: &Doors) -> Result<Self, Refusal> {
        let query = parts.uri.query().unwrap_or_default();
        if form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "key") {
            return Err(Refusal::KeyInUrl);
        }
        let peer = parts.extensions.get::<Peer>().cloned();
        let role = doors.identify(bearer(&parts.headers), peer.as_ref())?;
        if let Some(called_by) = parts.extensions.get::<CalledBy>() {
            called_by.fill(&role);
        }
        Ok(Self { role, peer })
    }
}

/// The key of the one `Authorization: Bearer` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, key) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start_matches(' '))
}

impl FromRequestParts<Doors> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        Self::of(parts, doors)
    }
}

impl FromRequestParts<Doors> for WorkerCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let Caller { role, peer } = Caller::of(parts, doors)?;
        match role {
            Role::Worker(known) => Ok(Self { known, peer }),
            Role::Admin => Err(Refusal::WorkersOnly),
        }
    }
}

impl FromRequestParts<Doors> for AdminCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        match Caller::of(parts, doors)?.role {
            Role::Worker(_) => Err(Refusal::AdminOnly),
            Role::Admin => Ok(Self),
        }
    }
}

// === impl CalledBy ===

impl CalledBy {
    pub(crate) fn fill(&self, role: &Role) {
        let name = match role {
            Role::Worker(known) => known.worker.name.to_string(),
            Role::Admin => "(admin)".to_owned(),
        };
        self.0.get_or_init(|| name);
    }
}

/// A path we do not know; the extractor has asked for a key first.
pub(crate) async fn unknown_path(_caller: Caller) -> Refusal {
    Refusal::NotFound
}

/// A path we know, with another method.
pub(crate) async fn wrong_method() -> Refusal {
    Refusal::Method
}
