//! Whom a command asks: a running gateway over HTTP, or the same doors and engine inside this process.

use axum::Router;
use domain::secret::Secret;
use doors::{Doors, DoorsConfig, KeyDigest, Workers};
use tower::ServiceExt as _;

use super::{Context, serve::local_worker};
use crate::{
    assemble::{Assembled, Purpose, door_worker},
    cli::Whom,
    client::{Call, Remote, Reply},
    exit::{Exit, Failure},
};

/// Whom a command asks.
pub enum Gateway {
    /// A running one.
    Remote(Remote),
    /// One in this process.
    Local(Box<Local>),
}

/// Doors and engine in this process, with keys nobody else knows.
pub struct Local {
    assembled: Assembled,
    router: Router,
    worker: Secret,
    admin: Secret,
}

/// In whose name something is asked, when this process is the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The worker called `local`.
    Worker,
    /// The admin, who sees everything.
    Admin,
}

// === impl Gateway ===

impl Gateway {
    /// Finds the gateway that is to be asked.
    pub async fn open(context: &Context, whom: &Whom, purpose: Purpose) -> Result<Self, Failure> {
        let Some(server) = &whom.server else {
            return Local::start(context, purpose).await.map(|local| Self::Local(Box::new(local)));
        };
        let key = whom.key.as_deref().ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "--server needs --key (or SOLVEGATE_KEY): the worker's or the admin's key",
            )
        })?;
        let key = context.sources.secret("--key", key)?;
        Remote::new(server, key, whom.cacert.as_deref()).map(Self::Remote)
    }

    /// Asks once. The role matters only in this process: elsewhere the given key decides.
    pub async fn ask(&self, role: Role, call: &Call) -> Result<Reply, Failure> {
        match self {
            Self::Remote(remote) => remote.send(call).await,
            Self::Local(local) => local.send(role, call).await,
        }
    }

    /// Lets go; a gateway in this process gives its leases back.
    pub async fn close(self) {
        match self {
            Self::Remote(_) => {}
            Self::Local(local) => local.assembled.stop().await,
        }
    }
}

// === impl Local ===

impl Local {
    async fn start(context: &Context, purpose: Purpose) -> Result<Self, Failure> {
        let config = context.sources.load()?;
        let assembled = Assembled::start(&config, purpose).await?;
        let (worker, admin) =
            (Secret::new(assembled.chance.key()), Secret::new(assembled.chance.key()));
        let digest = |key: &Secret| KeyDigest::of(key.expose()).map_err(Failure::of(Exit::Failed));
        let local = local_worker(digest(&worker)?)?;
        // The others are known too, so that their letters can be brought back; nobody calls with their keys in here.
        let others = config.workers.iter().filter(|other| other.name != local.name);
        let mut all = others.map(door_worker).collect::<Result<Vec<_>, _>>()?;
        all.push(local);
        let workers = Workers::new(all);
        let settings = DoorsConfig {
            workers: workers.map_err(Failure::of(Exit::Failed))?,
            admin: Some(digest(&admin)?),
            ..DoorsConfig::default()
        };
        let router = doors::router(&Doors::new(assembled.engine.clone(), settings));
        Ok(Self { assembled, router, worker, admin })
    }

    async fn send(&self, role: Role, call: &Call) -> Result<Reply, Failure> {
        let key = match role {
            Role::Worker => &self.worker,
            Role::Admin => &self.admin,
        };
        let request = call.request("localhost", key)?.map(axum::body::Body::new);
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        Reply::read(response).await
    }
}
