//! The accept loop: who gets in, how many, and how all leave. Before: the listener. After: guard.rs, hyper, the router.
//!
//! `axum::serve` has no header timeout, no cap on connections and no bound on draining, hence our own.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, response::Response};
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
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;
use tracing::{debug, info, warn};

use crate::{
    guard::Guard,
    limits::{Limits, TARGET_BYTES},
    peer::Peer,
    tls::TlsMaterial,
};

/// How connections are served.
#[derive(Clone, Debug, Default)]
pub struct ServeConfig {
    /// The certificate; plain HTTP/1.1 without.
    pub tls: Option<TlsMaterial>,
    /// Bounds.
    pub limits: Limits,
}

/// What every connection shares.
struct Hall {
    router: Router,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    closing: watch::Receiver<bool>,
}

/// Counts connections by address.
struct Doorman {
    limits: Limits,
    present: Mutex<Present>,
}

#[derive(Default)]
struct Present {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One connection's place; given back when dropped.
struct Place {
    doorman: Arc<Doorman>,
    address: IpAddr,
}

/// Out of file descriptors or memory: others must leave before anyone can come in.
const BACK_OFF: Duration = Duration::from_millis(100);

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\n";

/// Serves until `shutdown`, then takes no more connections and lets requests under way finish for up to
/// `limits.drain`.
pub fn serve<'a>(
    listener: TcpListener,
    router: Router,
    config: ServeConfig,
    shutdown: impl Future<Output = ()> + Send + 'a,
) -> BoxFuture<'a, ()> {
    // Boxed, so that everything a connection needs is compiled in this crate and not in every one that serves.
    Box::pin(serve_until(listener, router, config, Box::pin(shutdown)))
}

async fn serve_until(
    listener: TcpListener,
    router: Router,
    config: ServeConfig,
    mut shutdown: BoxFuture<'_, ()>,
) {
    let limits = config.limits;
    let doorman = Arc::new(Doorman { limits, present: Mutex::default() });
    let (close, closing) = watch::channel(false);
    let tls = config.tls.as_ref().map(TlsMaterial::acceptor);
    let hall = Arc::new(Hall { router, tls, limits, closing });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => match doorman.admit(from.ip()) {
                    Some(place) => {
                        connections.spawn(attend(stream, from, Arc::clone(&hall), place));
                    }
                    None => turn_away(&stream, &hall),
                },
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

/// Refuses early and visibly; behind TLS there is no cheap way to say why.
fn turn_away(stream: &TcpStream, hall: &Hall) {
    debug!("connection refused, connection limit reached");
    if hall.tls.is_none()
        && let Err(error) = stream.try_write(FULL)
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
    #[expect(clippy::disallowed_methods, reason = "the machine is short, not the engine")]
    tokio::time::sleep(BACK_OFF).await;
}

async fn attend(stream: TcpStream, from: SocketAddr, hall: Arc<Hall>, _place: Place) {
    let peer = Peer::new(from.ip(), hall.closing.clone());
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "connection closed before it was handled");
        return;
    }
    match &hall.tls {
        None => speak_http1(stream, peer, &hall).await,
        // Boxed, so that a plain connection does not carry the room a TLS session would need.
        Some(tls) => Box::pin(attend_tls(tls, stream, peer, &hall)).await,
    }
}

async fn attend_tls(tls: &TlsAcceptor, stream: TcpStream, peer: Peer, hall: &Arc<Hall>) {
    match timeout(hall.limits.handshake_timeout, tls.accept(stream)).await {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
            speak_http2(stream, peer, hall).await;
        }
        Ok(Ok(stream)) => speak_http1(stream, peer, hall).await,
        Ok(Err(error)) => debug!(%error, "tls handshake failed"),
        Err(_) => debug!("tls handshake timeout"),
    }
}

async fn speak_http1<S>(stream: S, peer: Peer, hall: &Hall)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Guard::http1(stream, peer.clone(), hall.limits));
    let service = service_fn(|request| answer(hall, &peer, request));
    let mut builder = http1::Builder::new();
    // The guard keeps time for heads, so that a kept-alive connection may be idle for longer than a head may take.
    builder.timer(TokioTimer::new()).header_read_timeout(None);
    builder.max_headers(hall.limits.headers);
    // Buffers grow on demand from 8 KiB: a held request costs that much, whatever the largest head may be.
    builder.max_buf_size(TARGET_BYTES + hall.limits.head_bytes);
    let mut connection = pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = closed(hall) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    note_end(ended);
}

async fn speak_http2<S>(stream: S, peer: Peer, hall: &Arc<Hall>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Guard::http2(stream, peer.clone(), hall.limits));
    let shared = Arc::clone(hall);
    let service = service_fn(move |request| {
        let (hall, peer) = (Arc::clone(&shared), peer.clone());
        async move { answer(&hall, &peer, request).await }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    builder.max_concurrent_streams(hall.limits.streams);
    builder.max_header_list_size(u32::try_from(hall.limits.head_bytes).unwrap_or(u32::MAX));
    builder.initial_stream_window_size(64 * 1024).initial_connection_window_size(1024 * 1024);
    builder.max_send_buf_size(64 * 1024);
    let mut connection = pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = closed(hall) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    note_end(ended);
}

/// One request through the router. The router's answer to anything is a response.
fn answer(
    hall: &Hall,
    peer: &Peer,
    request: Request<Incoming>,
) -> Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>> {
    let busy = peer.busy();
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(peer.clone());
    let answer = hall.router.clone().oneshot(request);
    Box::pin(async move {
        let answered = answer.await;
        drop(busy);
        answered
    })
}

async fn closed(hall: &Hall) {
    let mut closing = hall.closing.clone();
    if closing.wait_for(|closing| *closing).await.is_err() {
        debug!("accept loop has stopped");
    }
}

/// A client that goes away or talks nonsense is no event of ours.
fn note_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        debug!(%error, "connection ended early");
    }
}

// === impl Doorman ===

impl Doorman {
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut present = self.present.lock().expect("no holder of this lock can panic");
        let here = present.by_address.get(&address).copied().unwrap_or(0);
        let full =
            present.all >= self.limits.connections || here >= self.limits.connections_per_address;
        if full {
            return None;
        }
        present.all += 1;
        present.by_address.insert(address, here + 1);
        Some(Place { doorman: Arc::clone(self), address })
    }

    fn leave(&self, address: IpAddr) {
        let mut present = self.present.lock().expect("no holder of this lock can panic");
        present.all -= 1;
        let here = present.by_address.get_mut(&address).expect("counted when it came in");
        *here -= 1;
        if *here == 0 {
            present.by_address.remove(&address);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.doorman.leave(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let limits = Limits { connections: 3, connections_per_address: 2, ..Limits::default() };
        let doorman = Arc::new(Doorman { limits, present: Mutex::default() });
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let there: IpAddr = "::1".parse().unwrap();
        let first = doorman.admit(here).unwrap();
        let second = doorman.admit(here).unwrap();
        assert!(doorman.admit(here).is_none(), "two from one address");
        let third = doorman.admit(there).unwrap();
        assert!(doorman.admit(there).is_none(), "three in all");
        drop(first);
        assert!(doorman.admit(there).is_some());
        drop((second, third));
        assert!(doorman.present.lock().unwrap().by_address.is_empty());
    }
}
