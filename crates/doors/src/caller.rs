//! Authentication for both doors: a key identifies a worker or an admin. A handler names the least role it needs by the type
//! of its caller.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use domain::{
    actor::{Actor, ActorRole, AdminRole},
    id::{Project, WorkerName},
    key::KeyDigest,
    ports::Scope,
    retry::Code,
    time::Timestamp,
};
use engine::RefusedRequest;
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
    /// Too many unknown keys came from this address: this one is unknown too, or was not checked.
    TooMany(Duration),
}

/// The caller's name for the access log: middleware.rs puts an empty one into the request, authentication fills it in.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerName(pub(crate) Arc<OnceLock<String>>);

/// The log lines about wrong keys are counted under one address.
const EVERYBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

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
        let (address, now) = (Peer::address_of(peer), self.now());
        // Behind a proxy one misconfigured worker must not lock out the others. From an address that has shown no valid
        // key, further keys are not even checked, so that nobody can guess on and on.
        let is_known =
            peer.is_none_or(Peer::has_shown_key) || self.strangers().is_known(address, now);
        if !is_known {
            self.0.wrong_keys.check(address, now).map_err(|wait| {
                self.count_refusal_of(None, None, peer.map(|_| address), "too_many_wrong_keys");
                AuthError::TooMany(wait)
            })?;
        }
        let role = self.role_of(key, now).map_err(|was| {
            // The name of a key that has expired is no proof of who sent it, but it says whose key is still in use.
            self.count_refusal_of(was.clone(), None, peer.map(|_| address), "unauthorized");
            self.refuse_key(was, address, now)
        })?;
        // Once per connection: this is on the path of every request.
        if peer.is_none_or(Peer::show_key) {
            self.strangers().note_known(address, now);
        }
        Ok(role)
    }

    /// `Err` with the name of the owner until the key expired, if there was one.
    fn role_of(&self, key: KeyDigest, now: Timestamp) -> Result<Role, Option<WorkerName>> {
        match self.workers().find(key, now) {
            KeyOwner::Worker(known) => return Ok(Role::Worker(known)),
            KeyOwner::Formerly(known) => return Err(Some(known.worker.name.clone())),
            KeyOwner::Nobody => {}
        }
        let (admin, used) = self.admins().find(key).ok_or(None)?;
        if used.is_valid(now) { Ok(Role::Admin(admin)) } else { Err(Some(admin.name.clone())) }
    }

    /// Counts and logs a failed login.
    fn refuse_key(&self, was: Option<WorkerName>, address: IpAddr, now: Timestamp) -> AuthError {
        if let Err(wait) = self.0.wrong_keys.count(address, now) {
            return AuthError::TooMany(wait);
        }
        if self.0.login_lines.count(EVERYBODY, now).is_ok() {
            if let Some(owner) = was {
                warn!(%address, %owner, "login failed, key has expired");
            } else {
                warn!(%address, "login failed, unknown key");
            }
            if self.0.wrong_keys.check(address, now).is_err() {
                warn!(%address, "too many failed logins, logging no more of this address for a minute");
            }
        }
        AuthError::Unknown
    }

    /// The worker whose key has this digest, if it gives access at this moment.
    pub(crate) fn worker_by_digest(&self, key: KeyDigest) -> Option<Arc<KnownWorker>> {
        match self.workers().find(key, self.now()) {
            KeyOwner::Worker(known) => Some(known),
            KeyOwner::Formerly(_) | KeyOwner::Nobody => None,
        }
    }

    /// Takes a permit of this gateway's share of a worker's rate, or returns how long to wait.
    pub(crate) fn take(
        &self,
        known: &KnownWorker,
        limiter: Option<&Arc<RateLimiter>>,
        peer: Option<&Peer>,
    ) -> Result<(), Duration> {
        self.permit(limiter).inspect_err(|_| self.count_refusal(Some(known), peer, "rate_exceeded"))
    }

    /// The same for a request that waits for its turn, which is no refusal.
    pub(crate) fn permit(&self, limiter: Option<&Arc<RateLimiter>>) -> Result<(), Duration> {
        limiter.map_or(Ok(()), |limiter| limiter.take(self.now(), self.engine().gateways()))
    }

    /// Counts a request that is refused before the engine sees it.
    pub(crate) fn count_refusal(
        &self,
        known: Option<&KnownWorker>,
        peer: Option<&Peer>,
        code: &'static str,
    ) {
        let name = known.map(|known| known.worker.name.clone());
        let project = known.map(|known| known.worker.project.clone());
        self.count_refusal_of(name, project, peer.map(|peer| peer.address().to_canonical()), code);
    }

    fn count_refusal_of(
        &self,
        worker: Option<WorkerName>,
        project: Option<Project>,
        address: Option<IpAddr>,
        code: &'static str,
    ) {
        let code = Code::from(code);
        let refused = RefusedRequest { worker, project, kind: None, code, address, pageurl: None };
        self.engine().count_refusal(refused);
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

    /// Whether it may read the account's balance. Admins may.
    pub(crate) fn may_read_balance(&self) -> bool {
        self.worker().is_none_or(|known| known.worker.balance)
    }

    /// The records this caller may see.
    pub(crate) fn scope(&self) -> Scope {
        match &self.role {
            Role::Worker(known) => Scope::Worker(known.worker.name.clone()),
            Role::Admin(_) => Scope::All,
        }
    }

    /// Whether the caller may act on records: a worker on its own, an admin from the role operator on. Returns the admin, for
    /// the audit trail.
    pub(crate) fn operator(&self, doors: &Doors) -> Result<Option<Actor>, Refusal> {
        match &self.role {
            Role::Worker(_) => Ok(None),
            Role::Admin(_) => self.admin(doors, AdminRole::Operator).map(Some),
        }
    }

    /// The caller, if it is an admin of this role or a higher one.
    fn admin(&self, doors: &Doors, least: AdminRole) -> Result<Actor, Refusal> {
        let (name, refused) = match &self.role {
            Role::Worker(known) => (&known.worker.name, Err(Refusal::AdminOnly)),
            Role::Admin(admin) => (&admin.name, self.admin_of(admin, least)),
        };
        refused.inspect_err(|refusal| {
            let code = refusal.status_and_code().1;
            doors.count_refusal_of(Some(name.clone()), None, self.address(), code);
        })
    }

    fn admin_of(&self, admin: &Admin, least: AdminRole) -> Result<Actor, Refusal> {
        if admin.role < least {
            return Err(Refusal::RoleTooLow { has: admin.role, needs: least });
        }
        let address = self.address();
        // Without a connection, a command runs the engine in its own process.
        let role = address.map_or(ActorRole::Process, |_| admin.role.into());
        Ok(Actor { name: admin.name.clone(), role, address })
    }

    fn address(&self) -> Option<IpAddr> {
        self.peer.as_ref().map(|peer| peer.address().to_canonical())
    }
}

/// The key in `Authorization: Bearer`; a repeated header is refused.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, key) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start_matches(' '))
}

impl FromRequestParts<Doors> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let caller = Self::authenticate(parts, doors)?;
        if let Some(known) = caller.worker() {
            let taken = doors.take(known, known.reads.as_ref(), caller.peer.as_ref());
            taken.map_err(Refusal::Rate)?;
        }
        Ok(caller)
    }
}

impl FromRequestParts<Doors> for PollCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let caller = Caller::authenticate(parts, doors)?;
        if let Some(known) = caller.worker() {
            let taken = doors.take(known, known.polls.as_ref(), caller.peer.as_ref());
            taken.map_err(Refusal::Rate)?;
        }
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
        caller.admin(doors, AdminRole::Reader).map(|_| Self)
    }
}

impl FromRequestParts<Doors> for OperatorCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Refusal> {
        let caller = Caller::authenticate(parts, doors)?;
        caller.admin(doors, AdminRole::Operator).map(Self)
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
