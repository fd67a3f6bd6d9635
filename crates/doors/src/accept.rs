//! The accept loop: connection limits, TLS, HTTP/1 and HTTP/2, drain. Each connection goes through guard.rs and hyper to
//! the router.
//!
//! We do not use `axum::serve`, because it has no header timeout, no limit on connections and no bound on draining.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{StatusCode, header},
    response::Response,
};
use futures_util::future::BoxFuture;
use hyper::{
    Request,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tower::ServiceExt as _;
use tracing::{debug, info, warn};

use crate::{
    connection_limit::{ConnectionLimiter, ConnectionPermit},
    guard::GuardedStream,
    limits::{Limits, TARGET_BYTES},
    peer::Peer,
    tls::TlsMaterial,
};

#[derive(Clone, Debug, Default)]
pub struct ServeConfig {
    /// Without a certificate, HTTP/1.1 is served unencrypted.
    pub tls: Option<TlsMaterial>,
    pub limits: Limits,
}

/// The state that all connections share.
struct ServerState {
    router: Router,
    tls: Option<TlsMaterial>,
    limits: Limits,
    closing: watch::Receiver<bool>,
}

/// The pause after running out of file descriptors or memory: some connection has to close first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\n";

/// Serves until `shutdown`, then refuses new connections and lets requests under way finish for up to `limits.drain`.
pub fn serve<'a>(
    listener: TcpListener,
    router: Router,
    config: ServeConfig,
    shutdown: impl Future<Output = ()> + Send + 'a,
) -> BoxFuture<'a, ()> {
    // Boxed, so that the code of a connection is compiled in this crate and not again in each crate that calls this.
    Box::pin(serve_until(listener, router, config, Box::pin(shutdown)))
}

async fn serve_until(
    listener: TcpListener,
    router: Router,
    config: ServeConfig,
    mut shutdown: BoxFuture<'_, ()>,
) {
    let limits = config.limits;
    let limiter = Arc::new(ConnectionLimiter::new(limits));
    let (close, closing) = watch::channel(false);
    let state = Arc::new(ServerState { router, tls: config.tls, limits, closing });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let peer = Peer::new(from.ip(), state.closing.clone());
                    match limiter.admit(&peer) {
                        Some(permit) => {
                            connections.spawn(handle_connection(stream, peer, Arc::clone(&state), permit));
                        }
                        None => refuse_connection(&stream, &state),
                    }
                }
                Err(error) => back_off(&error).await,
            },
        }
    }
    drop(listener);
    close.send_replace(true);
    drain(connections, limits.drain).await;
}

async fn drain(mut connections: JoinSet<()>, grace: Duration) {
    info!(connections = connections.len(), "draining");
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, all).await.is_err() {
        warn!(connections = connections.len(), "drain timeout, closing remaining connections");
        connections.shutdown().await;
    }
}

/// Answers 503 where that is cheap; with TLS it would need a handshake first.
fn refuse_connection(stream: &TcpStream, state: &ServerState) {
    debug!("connection refused, connection limit reached");
    if state.tls.is_none()
        && let Err(error) = stream.try_write(TOO_MANY_CONNECTIONS)
    {
        debug!(%error, "failed to send the refusal");
    }
}

async fn back_off(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        return;
    }
    warn!(%error, "failed to accept a connection");
    #[expect(clippy::disallowed_methods, reason = "no claim's time depends on it")]
    tokio::time::sleep(ACCEPT_BACKOFF).await;
}

async fn handle_connection(
    stream: TcpStream,
    peer: Peer,
    state: Arc<ServerState>,
    _permit: ConnectionPermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "connection closed before it was handled");
        return;
    }
    let handle = async {
        match &state.tls {
            None => serve_http1(stream, peer.clone(), &state).await,
            // Boxed, so that a connection without TLS does not reserve memory for a TLS session.
            Some(tls) => Box::pin(handle_tls(tls, stream, peer.clone(), &state)).await,
        }
    };
    tokio::select! {
        biased;
        () = peer.displaced() => debug!("connection closed, another one got its place"),
        () = handle => {}
    }
}

async fn handle_tls(tls: &TlsMaterial, stream: TcpStream, peer: Peer, state: &Arc<ServerState>) {
    peer.set_secure();
    // Each part boxed: strangers can open thousands of connections, and each is to take the memory of its own part only.
    let accepted = Box::pin(tls.acceptor().accept(stream));
    let stream = match timeout(state.limits.handshake_timeout, accepted).await {
        Ok(Ok(stream)) => Box::new(stream),
        Ok(Err(error)) => return debug!(%error, "tls handshake failed"),
        Err(_) => return debug!("tls handshake timeout"),
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Box::pin(serve_http2(stream, peer, state)).await;
    } else {
        Box::pin(serve_http1(stream, peer, state)).await;
    }
}

async fn serve_http1<S>(stream: S, peer: Peer, state: &ServerState)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(GuardedStream::new(stream, peer.clone(), state.limits, true));
    let service = service_fn(|request| respond(state, &peer, request));
    let mut builder = http1::Builder::new();
    // guard.rs has the head timeout, because an idle keep-alive connection may wait longer than a head may take.
    builder.timer(TokioTimer::new()).header_read_timeout(None);
    builder.max_headers(state.limits.headers);
    // Buffers start at 8 KiB and grow on demand, so a long poll costs 8 KiB however large a head may be.
    builder.max_buf_size(TARGET_BYTES + state.limits.head_bytes);
    run(builder.serve_connection(io, service), state, http1::Connection::graceful_shutdown).await;
}

async fn serve_http2<S>(stream: S, peer: Peer, state: &Arc<ServerState>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(GuardedStream::new(stream, peer.clone(), state.limits, false));
    let shared = Arc::clone(state);
    let service = service_fn(move |request| {
        let (state, peer) = (Arc::clone(&shared), peer.clone());
        async move { respond(&state, &peer, request).await }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    builder.max_concurrent_streams(state.limits.streams);
    builder.max_header_list_size(u32::try_from(state.limits.head_bytes).unwrap_or(u32::MAX));
    // What a peer can send before anybody reads it. The limit on streams cannot change while a connection lasts, so this
    // window and `stranger_forms` bound what one without a key can take.
    builder.initial_stream_window_size(64 * 1024).initial_connection_window_size(256 * 1024);
    builder.max_send_buf_size(64 * 1024);
    run(builder.serve_connection(io, service), state, http2::Connection::graceful_shutdown).await;
}

/// Runs a connection to its end; when the gateway drains, requests under way still finish.
async fn run<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    state: &ServerState,
    shut_down: impl FnOnce(Pin<&mut C>),
) {
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = closed(state) => {
            shut_down(connection.as_mut());
            connection.await
        }
    };
    // Only at debug level: a client that disconnects or breaks the protocol is no trouble of ours.
    if let Err(error) = ended {
        debug!(%error, "connection ended early");
    }
}

fn respond(
    state: &ServerState,
    peer: &Peer,
    request: Request<Incoming>,
) -> Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>> {
    let in_flight = peer.begin_request();
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(peer.clone());
    let response = state.router.clone().oneshot(request);
    Box::pin(async move {
        let mut response = response.await?;
        // The router adds it to every answer for a wrong method, also to a caller without a key.
        if response.status() != StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().remove(header::ALLOW);
        }
        drop(in_flight);
        Ok(response)
    })
}

async fn closed(state: &ServerState) {
    let mut closing = state.closing.clone();
    if closing.wait_for(|closing| *closing).await.is_err() {
        debug!("accept loop has stopped");
    }
}
