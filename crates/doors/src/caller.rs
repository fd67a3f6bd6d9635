//! Authentication for both doors: a key identifies a worker or an admin. A handler names the least role it needs by the type
//! of its caller.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use domain::{
    actor::{Actor, ActorRole, AdminRole},
    key::KeyDigest,
    ports::Scope,
};
use tracing::warn;
use url::form_urlencoded;

use crate::{
    Doors,
    admin::Admin,
    error::Refusal,
    peer::Peer,
    worker::{KeyOwner, KnownWorker, RateLimiter},
};

/// A caller with a valid key. As an extractor it counts as a read of a worker's; requests with a rate of their own use
/// [`WorkerCaller`] and [`PollCaller`].
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    /// `None` when the router is used without the accept loop.
    pub(crate) peer: Option<Peer>,
}

/// The access that a key gives.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// May claim, and read its own records.
    Worker(Arc<KnownWorker>),
    /// May read all records, and administer as far as its role allows.
    Admin(Arc<Admin>),
}

#[derive(Clone, Debug)]
pub(crate) struct WorkerCaller {
    pub(crate) known: Arc<KnownWorker>,
    pub(crate) peer: Option<Peer>,
}

/// A caller that fetches one claim, perhaps again and again.
#[derive(Clone, Debug)]
pub(crate) struct PollCaller(pub(crate) Caller);

/// An admin of any role: it may read.
#[derive(Clone, Debug)]
pub(crate) struct ReaderCaller;

/// An admin that may operate, for the audit trail.
#[derive(Clone, Debug)]
pub(crate) struct OperatorCaller(pub(crate) Actor);

/// Why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// Missing, or not in the form of a key.
    Malformed,
    Unknown,
    /// Unknown, and too many unknown keys came from this address.
    TooMany(Duration),
}

/// The caller's name for the access log: middleware.rs puts an empty one into the request, authentication fills it in.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerName(pub(crate) Arc<OnceLock<String>>);

// === impl Doors ===

impl Doors {
    /// Finds the owner of a key.
    pub(crate) fn identify(
        &self,
        key: Option<&str>,
        peer: Option<&Peer>,
    ) -> Result<Role, AuthError> {
        // A malformed key is not a guess, so it does not count towards the limit.
        let key = key.and_then(|key| KeyDigest::of(key).ok()).ok_or(AuthError::Malformed)?;
        if let Some(role) = self.role_of(key, peer) {
            // Once per connection: this is on the path of every request.
            if peer.is_none_or(Peer::show_key) {
                self.strangers().note_known(Peer::address_of(peer), self.now());
            }
            return Ok(role);
        }
        match self.0.wrong_keys.count(Peer::address_of(peer), self.now()) {
            Ok(()) => Err(AuthError::Unknown),
            Err(wait) => Err(AuthError::TooMany(wait)),
        }
    }

    fn role_of(&self, key: KeyDigest, peer: Option<&Peer>) -> Option<Role> {
        match self.workers().find(key, self.now()) {
            KeyOwner::Worker(known) => return Some(Role::Worker(known)),
            KeyOwner::Formerly(known) => {
                let address = Peer::address_of(peer);
                warn!(worker = %known.worker.name, %address, "expired key refused");
            }
            KeyOwner::Nobody => {}
        }
        self.config().admins.find(key).map(Role::Admin)
    }

    /// Takes a permit of this gateway's share of a worker's rate, or returns how long to wait.
    pub(crate) fn take(&self, limiter: Option<&Arc<RateLimiter>>) -> Result<(), Duration> {
        limiter.map_or(Ok(()), |limiter| limiter.take(self.now(), self.engine().gateways()))
    }
}

// === impl Caller ===

impl Caller {
    fn authenticate(parts: &Parts, doors: &Doors) -> Result<Self, Refusal> {
        let query = parts.uri.query().unwrap_or_default();
        if form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "key") {
            return Err(Refusal::KeyInUrl);
        }
        let peer = parts.extensions.get::<Peer>().cloned();
        let role = doors.identify(bearer(&parts.headers), peer.as_ref())?;
        if let Some(caller_name) = parts.extensions.get::<CallerName>() {
            caller_name.fill(&role);
        }
        Ok(Self { role, peer })
    }

    /// The worker, if it is one.
    fn worker(&self) -> Option<&KnownWorker> {
        match &self.role {
            Role::Worker(known) => Some(known),
            Role::Admin(_) => None,
        }
    }

    /// The records this caller may see.
    pub(crate) fn scope(&self) -> Scope {
        match &self.role {
            Role::Worker(known) => Scope::Worker(known.worker.name.clone()),
            Role::Admin(_) => Scope::All,
        }
    }

    /// The caller as the audit trail names it, if it may act on records: a worker on its own, an admin from the role
    /// operator on.
    pub(crate) fn operator(&self) -> Result<Actor, Refusal> {
        match &self.role {
            Role::Worker(known) => {
                let (name, role) = (known.worker.name.clone(), ActorRole::Worker);
                Ok(Actor { name, role, address: self.address() })
            }
            Role::Admin(admin) => self.admin_of(admin, AdminRole::Operator),
        }
    }

    /// The caller, if it is an admin of this role or a higher one.
    fn admin(&self, least: AdminRole) -> Result<Actor, Refusal> {
        match &self.role {
            Role::Worker(_) => Err(Refusal::AdminOnly),
            Role::Admin(admin) => self.admin_of(admin, least),
        }
    }

    fn admin_of(&self, admin: &Admin, least: AdminRole) -> Result<Actor, Refusal> {
        if admin.role < least {
            return Err(Refusal::RoleTooLow { has: admin.role, needs: least });
        }
        Ok(Actor { name: admin.name.clone(), role: admin.role.into(), address: self.address() })
    }

    fn address(&self) -> Option<IpAddr> {
        self.peer.as_ref().map(|peer| peer.address().to_canonical())
    }
}

/// The key in `Authorization: Bearer`; a repeated header is refused.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, key) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start_matches(' '))
}

impl FromRequestParts<Doors> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let caller = Self::authenticate(parts, doors)?;
        let limiter = caller.worker().and_then(|known| known.reads.as_ref());
        doors.take(limiter).map_err(Refusal::Rate)?;
        Ok(caller)
    }
}

impl FromRequestParts<Doors> for PollCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let caller = Caller::authenticate(parts, doors)?;
        let limiter = caller.worker().and_then(|known| known.polls.as_ref());
        doors.take(limiter).map_err(Refusal::Rate)?;
        Ok(Self(caller))
    }
}

impl FromRequestParts<Doors> for WorkerCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let Caller { role, peer } = Caller::authenticate(parts, doors)?;
        match role {
            Role::Worker(known) => Ok(Self { known, peer }),
            Role::Admin(_) => Err(Refusal::WorkersOnly),
        }
    }
}

impl FromRequestParts<Doors> for ReaderCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let caller = Caller::authenticate(parts, doors)?;
        caller.admin(AdminRole::Reader).map(|_| Self)
    }
}

impl FromRequestParts<Doors> for OperatorCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let caller = Caller::authenticate(parts, doors)?;
        caller.admin(AdminRole::Operator).map(Self)
    }
}

// === impl CallerName ===

impl CallerName {
    pub(crate) fn fill(&self, role: &Role) {
        let name = match role {
            Role::Worker(known) => known.worker.name.to_string(),
            Role::Admin(admin) => format!("({})", admin.name),
        };
        self.0.get_or_init(|| name);
    }
}

/// Answers an unknown path, after the extractor has checked the key.
pub(crate) async fn unknown_path(_caller: Caller) -> Refusal {
    Refusal::NotFound
}

/// The same for a path that has other methods: without a key it cannot be told from an unknown one.
pub(crate) async fn wrong_method(_caller: Caller) -> Refusal {
    Refusal::Method
}
