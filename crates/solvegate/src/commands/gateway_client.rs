//! Sends a command's requests to a running gateway over HTTP, or to the same doors and engine inside this process.

use axum::{Router, extract::Request, response::Response};
use domain::secret::Secret;
use doors::{Admins, Doors, DoorsConfig, KeyDigest, Workers};
use serde_json::Value;
use tower::ServiceExt as _;

use super::{
    Context,
    serve::{local_worker, only_admin},
};
use crate::{
    assemble::{Assembled, Purpose, door_worker},
    cli::ClientArgs,
    client::{Call, LineBody, LineStream, Remote, Reply},
    exit::{Exit, Failure},
};

pub(super) enum GatewayClient {
    Remote(Remote),
    Local(Box<LocalGateway>),
}

/// Doors and engine in this process, with random keys for this command only.
pub(super) struct LocalGateway {
    assembled: Assembled,
    router: Router,
    worker: Secret,
    admin: Secret,
}

/// The role of a request inside this process; a running gateway goes by the given key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The worker called `local`.
    Worker,
    Admin,
}

/// The key for `--server`, if there is no `--key`.
const KEY_VARIABLE: &str = "SOLVEGATE_KEY";

// === impl GatewayClient ===

impl GatewayClient {
    pub(super) async fn open(
        context: &Context,
        client: &ClientArgs,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let Some(server) = &client.server else {
            let local = LocalGateway::start(context, purpose).await?;
            return Ok(Self::Local(Box::new(local)));
        };
        let sources = &context.sources;
        let key = match (&client.key, sources.environment.get(KEY_VARIABLE)) {
            (Some(key), _) => sources.secret("--key", key)?,
            (None, Some(key)) => sources.secret(KEY_VARIABLE, key)?,
            (None, None) => {
                let what = "--server needs a worker key or the admin key: set SOLVEGATE_KEY, or write --key env:NAME or \
                            --key file:PATH";
                return Err(Failure::new(Exit::Usage, what));
            }
        };
        Remote::new(server, key, client.cacert.as_deref()).map(Self::Remote)
    }

    /// Makes one call as the admin; returns the body of a successful response.
    pub(super) async fn call(
        context: &Context,
        client: &ClientArgs,
        call: &Call,
    ) -> Result<Value, Failure> {
        let gateway = Self::open(context, client, Purpose::Reading).await?;
        let reply = gateway.send(Role::Admin, call).await;
        gateway.close().await;
        reply?.good()
    }

    pub(super) async fn send(&self, role: Role, call: &Call) -> Result<Reply, Failure> {
        match self {
            Self::Remote(remote) => remote.send(call).await,
            Self::Local(local) => local.send(role, call).await,
        }
    }

    /// Sends lines as a worker; answers come while lines are still sent.
    pub(super) async fn send_lines(
        &self,
        call: &Call,
        lines: LineBody,
    ) -> Result<LineStream, Failure> {
        match self {
            Self::Remote(remote) => remote.send_lines(call, lines).await,
            Self::Local(local) => local.send_lines(call, lines).await,
        }
    }

    /// Stops an engine in this process, which releases its leases.
    pub(super) async fn close(self) {
        match self {
            Self::Remote(_) => {}
            Self::Local(local) => local.assembled.stop().await,
        }
    }
}

// === impl LocalGateway ===

impl LocalGateway {
    async fn start(context: &Context, purpose: Purpose) -> Result<Self, Failure> {
        let config = context.sources.load()?;
        let assembled = Assembled::start(&config, purpose).await?;
        let (worker, admin) =
            (Secret::new(assembled.chance.key()), Secret::new(assembled.chance.key()));
        let digest = |key: &Secret| KeyDigest::of(key.expose()).map_err(Failure::of(Exit::Failed));
        let local = local_worker(digest(&worker)?)?;
        // The configured workers are needed to revive their dead letters; no request here uses their keys.
        let others = config.workers.iter().filter(|other| other.name != local.name);
        let mut all: Vec<_> = others.map(door_worker).collect();
        all.push(local);
        let workers = Workers::new(all);
        let settings = DoorsConfig {
            workers: workers.map_err(Failure::of(Exit::Failed))?,
            admins: Admins::new(vec![only_admin(digest(&admin)?)])
                .map_err(Failure::of(Exit::Failed))?,
            currency: config.upstream.currency,
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
        Reply::read(self.call(request).await).await
    }

    async fn send_lines(&self, call: &Call, lines: LineBody) -> Result<LineStream, Failure> {
        let request = call.request_of_lines("localhost", &self.worker, lines)?;
        let response = self.call(request.map(axum::body::Body::new)).await;
        LineStream::of(response, None).await
    }

    async fn call(&self, request: Request<axum::body::Body>) -> Response {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
