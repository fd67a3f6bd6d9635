//! The simulated provider over HTTP, on loopback: in.php and res.php (`exchange`), the ledger and the fault plan. `pingback` sends
//! pingbacks, `broken` makes faulty replies.
//!
//! | request | answer |
//! |---|---|
//! | `GET`/`POST /in.php`, `/res.php` | the provider's protocol |
//! | `GET /ledger` | [`crate::ledger::Ledger`] as JSON |
//! | `GET /ledger/count` | how many submissions arrived, as a plain number |
//! | `GET`, `POST`, `DELETE /faults` | see [`crate::faults`] |
//! | `POST /prices` | changes what tasks cost from now on: `{"turnstile":"0.002"}` |

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use domain::ports::Clock;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Collected, Limited, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    account::Account,
    broken::{self, Abort, Reply},
    clock::WallClock,
    config::BehaviourConfig,
    exchange,
    faults::{Call, Fault, Planned, read_plan},
    pingback::{self, Due},
};

#[derive(Clone, Copy, Debug)]
pub struct Sim;

#[derive(Clone, Debug)]
pub struct SimConfig {
    pub behaviour: BehaviourConfig,
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Appends every accepted task here, as a JSON line, before it is answered.
    pub ledger_file: Option<PathBuf>,
    /// Keeps the tasks here, so that they survive the process.
    pub tasks_file: Option<PathBuf>,
    pub clock: Arc<dyn Clock>,
}

/// A running provider; dropping this stops it.
#[derive(Debug)]
pub struct SimHandle {
    addr: SocketAddr,
    account: Account,
    tasks: JoinSet<()>,
}

/// The state that all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub(crate) account: Account,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The body of a reply; an error in it closes the connection.
pub(crate) type ReplyBody = UnsyncBoxBody<Bytes, Abort>;

/// Larger than any image the protocol allows, in base64.
const BODY_MAX: usize = 4 * 1024 * 1024;

// === impl Sim ===

impl Sim {
    /// Serves until the handle is dropped.
    pub fn start(config: SimConfig) -> BoxFuture<'static, io::Result<SimHandle>> {
        // Boxed, so that the server is compiled in this crate and not again in each crate that starts it.
        Box::pin(Self::listen(config))
    }

    async fn listen(config: SimConfig) -> io::Result<SimHandle> {
        let account = Account::new(config.behaviour);
        if let Some(path) = &config.ledger_file {
            account.keep_in(path)?;
        }
        if let Some(path) = &config.tasks_file {
            account.restore_from(path).map_err(|error| named(path, &error))?;
        }
        let listener = TcpListener::bind(config.listen).await?;
        let addr = listener.local_addr()?;
        let front = Front { account: account.clone(), clock: config.clock };
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, front));
        Ok(SimHandle { addr, account, tasks })
    }
}

// === impl SimConfig ===

impl SimConfig {
    /// On a free loopback port, with the wall clock.
    pub fn new(behaviour: BehaviourConfig) -> Self {
        Self {
            behaviour,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            ledger_file: None,
            tasks_file: None,
            clock: Arc::new(WallClock::default()),
        }
    }
}

// === impl SimHandle ===

impl SimHandle {
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address for `[upstream] url`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Closes the port and every connection.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("tasks file {}: {error}", path.display()))
}

async fn serve(listener: TcpListener, front: Front) {
    let mut connections = JoinSet::new();
    let (calls, due) = mpsc::channel(pingback::MAX_SCHEDULED);
    connections.spawn(pingback::run(due, front.clone()));
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, front.clone(), calls.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    // Without file descriptors, accepting again at once would spin.
                    crate::clock::pause(std::time::Duration::from_millis(50)).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, front: Front, calls: mpsc::Sender<Due>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set up a connection");
    }
    let service = service_fn(move |request| {
        let (front, calls) = (front.clone(), calls.clone());
        async move { answer(&front, &calls, request).await }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        // The drop and truncate faults abort connections.
        tracing::debug!(%error, "connection ended early");
    }
}

/// Answers one request; an error closes the connection without a reply.
async fn answer(
    front: &Front,
    calls: &mpsc::Sender<Due>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Abort> {
    let (parts, body) = request.into_parts();
    let is_submit = parts.uri.path() == "/in.php";
    let struck = if is_submit { front.account.draw(Call::Submit) } else { None };
    if struck.as_ref().is_some_and(|struck| struck.fault == Fault::Unreachable) {
        return Err(Abort);
    }
    let Ok(body) = Limited::new(body, BODY_MAX).collect().await.map(Collected::to_bytes) else {
        return Ok(broken::page(StatusCode::PAYLOAD_TOO_LARGE));
    };
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let query = parts.uri.query();
    match (&parts.method, parts.uri.path()) {
        (_, "/in.php") => {
            let form = wire::form::Form::read(query, content_type, &body);
            let reply = exchange::submit(front, calls, form, struck.as_ref());
            broken::deliver(struck, reply).await
        }
        (_, "/res.php") => {
            let form = wire::form::Form::read(query, content_type, &body);
            let (struck, reply) = exchange::fetch(front, form);
            broken::deliver(struck, reply).await
        }
        (&Method::GET, "/ledger") => Ok(json(&front.account.ledger())),
        (&Method::GET, "/ledger/count") => {
            Ok(Reply::text(front.account.received_submits().to_string()).whole())
        }
        (&Method::GET, "/faults") => Ok(json(&front.account.faults(|plan| plan.list()))),
        (&Method::POST, "/prices") => Ok(set_prices(&front.account, &body)),
        (&Method::POST, "/faults") => Ok(plan(&front.account, &body)),
        (&Method::DELETE, "/faults") => {
            front.account.faults(crate::FaultPlan::clear);
            Ok(json(&Vec::<Planned>::new()))
        }
        (_, _) => Ok(broken::page(StatusCode::NOT_FOUND)),
    }
}

/// Adds one fault or a list of them to the plan.
fn plan(account: &Account, body: &[u8]) -> Response<ReplyBody> {
    match read_plan(body) {
        Ok(planned) => {
            account.faults(|plan| planned.into_iter().for_each(|planned| plan.add(planned)));
            json(&account.faults(|plan| plan.list()))
        }
        Err(error) => {
            let mut response = Reply::text(format!("no fault was planned: {error}\n")).whole();
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    }
}

fn set_prices(account: &Account, body: &[u8]) -> Response<ReplyBody> {
    let read = serde_json::from_slice(body).map_err(|error| error.to_string());
    let set = read.and_then(|prices| {
        account.with(|behaviour| behaviour.set_prices(prices)).map_err(|error| error.to_string())
    });
    match set {
        Ok(()) => json(&true),
        Err(error) => {
            let mut response = Reply::text(format!("no price was changed: {error}\n")).whole();
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    }
}

fn json<T: serde::Serialize>(value: &T) -> Response<ReplyBody> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Reply { text, is_json: true, allow_origin: false }.whole(),
        Err(_) => broken::page(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

pub(crate) fn never(error: Infallible) -> Abort {
    match error {}
}
