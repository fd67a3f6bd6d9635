//! The connection to the server: opened when needed, shared by all requests, dropped when it fails, and opened again with backoff.
//!
//! This is not `redis::aio::ConnectionManager`: there, requests wait for the reconnection attempts instead of failing fast, and
//! it does not support clusters.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, PushInfo, RedisError, RedisResult,
    ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};
use rustls::crypto::{CryptoProvider, ring};
use tokio::{
    sync::{Mutex, mpsc::UnboundedSender},
    time::timeout,
};

use crate::backends::server::backoff::{BACKING_OFF, Backoff};

use super::address::RedisAddress;

/// One connection, or one to each node of a cluster. Requests are multiplexed on it.
#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// A connection that is opened again after it breaks.
pub(super) struct ReconnectingConnection {
    pub(super) address: RedisAddress,
    state: Mutex<State>,
    /// Counts the connections opened so far.
    generation: Arc<AtomicU64>,
    /// The generation of the connection that this one follows.
    leader: Option<Arc<AtomicU64>>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// The leader's generation when this connection was last used.
    followed: u64,
    backoff: Backoff,
}

/// A script and its hash, by which the server caches it.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) text: &'static str,
    pub(super) sha: String,
}

/// The timeout of a request and of a connection attempt.
const TIMEOUT: Duration = Duration::from_secs(1);

// === impl Connection ===

impl Connection {
    /// Connects. Messages that the server pushes go to `push_sender`.
    pub(super) async fn open(
        address: &RedisAddress,
        push_sender: Option<UnboundedSender<PushInfo>>,
    ) -> RedisResult<Self> {
        if address.is_over_tls() {
            install_crypto_provider();
        }
        if address.is_cluster {
            return Self::open_cluster(address, push_sender).await;
        }
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        if let Some(push_sender) = push_sender {
            config = config.set_push_sender(push_sender);
        }
        let node = address.nodes[0].clone();
        let client = match address.certificates() {
            Some(certificates) => Client::build_with_tls(node, certificates)?,
            None => Client::open(node)?,
        };
        Ok(Self::Single(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    async fn open_cluster(
        address: &RedisAddress,
        push_sender: Option<UnboundedSender<PushInfo>>,
    ) -> RedisResult<Self> {
        let mut builder = ClusterClientBuilder::new(address.nodes.clone())
            .use_protocol(redis::ProtocolVersion::RESP3)
            .connection_timeout(TIMEOUT)
            .response_timeout(TIMEOUT)
            .tcp_settings(address.nodes[0].tcp_settings().clone())
            // The client follows moved slots. It also resends lost requests, so on a cluster any commit may arrive twice.
            .retries(2);
        if let Some(certificates) = address.certificates() {
            builder = builder.certs(certificates);
        }
        if let Some(push_sender) = push_sender {
            builder = builder.push_sender(push_sender);
        }
        let connecting = builder.build()?;
        let connecting = connecting.get_async_connection();
        match timeout(2 * TIMEOUT, connecting).await {
            Ok(connection) => Ok(Self::Cluster(connection?)),
            Err(_) => Err(timed_out()),
        }
    }

    /// Sends a request and waits for the reply, up to the timeout. A request that names no key goes to the node that has `owned`.
    pub(super) async fn send(&mut self, cmd: &Cmd, owned: Option<&[u8]>) -> RedisResult<Value> {
        let reply = async {
            match (self, owned) {
                (Self::Single(connection), _) => connection.req_packed_command(cmd).await,
                (Self::Cluster(connection), None) => connection.req_packed_command(cmd).await,
                (Self::Cluster(connection), Some(key)) => {
                    let route = Route::with_key(key, SlotAddr::Master);
                    let route = SingleNodeRoutingInfo::SpecificNode(route);
                    connection.route_command(cmd.clone(), RoutingInfo::SingleNode(route)).await
                }
            }
        };
        timeout(2 * TIMEOUT, reply).await.unwrap_or_else(|_| Err(timed_out()))?.extract_error()
    }

    /// Sends requests together, on one connection to the node that has `owned`, and waits for all replies.
    async fn send_all(&mut self, all: &Pipeline, owned: &[u8]) -> RedisResult<Vec<Value>> {
        let count = all.len();
        let replies = async {
            match self {
                Self::Single(connection) => connection.req_packed_commands(all, 0, count).await,
                Self::Cluster(connection) => {
                    let route = Route::with_key(owned, SlotAddr::Master);
                    let route = SingleNodeRoutingInfo::SpecificNode(route);
                    connection.route_pipeline(all.clone(), 0, count, route).await
                }
            }
        };
        let replies = timeout(2 * TIMEOUT, replies).await.unwrap_or_else(|_| Err(timed_out()))?;
        replies.into_iter().map(Value::extract_error).collect()
    }

    pub(super) async fn subscribe(&mut self, channel: &[u8]) -> RedisResult<()> {
        match self {
            Self::Single(connection) => connection.subscribe(channel).await,
            Self::Cluster(connection) => connection.ssubscribe(channel).await,
        }
    }
}

/// The client uses the default crypto provider of the process, and panics if there is none.
fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        // Losing the race against another thread is fine.
        drop(ring::default_provider().install_default());
    }
}

fn timed_out() -> RedisError {
    RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))
}

// === impl ReconnectingConnection ===

impl ReconnectingConnection {
    /// `connection`: one that is already open.
    pub(super) fn new(address: RedisAddress, connection: Option<Connection>) -> Self {
        let state = Mutex::new(State { connection, ..State::default() });
        Self { address, state, generation: Arc::default(), leader: None }
    }

    /// Another connection to the same server. It is opened again whenever this one was: after a failover the old master may go on
    /// as a replica, which refuses writes and answers reads.
    pub(super) fn follower(&self) -> Self {
        Self { leader: Some(Arc::clone(&self.generation)), ..Self::new(self.address.clone(), None) }
    }

    /// The next request opens it again.
    pub(super) async fn close(&self) {
        self.state.lock().await.connection = None;
    }

    /// Sends a request. After an error the server may have executed it all the same.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        self.send_to(cmd, None).await
    }

    /// Sends a request that names no key to the node that has this one.
    pub(super) async fn send_to_owner(&self, cmd: &Cmd, key: &[u8]) -> RedisResult<Value> {
        self.send_to(cmd, Some(key)).await
    }

    /// Sends requests together, on one connection to the node that has this key.
    pub(super) async fn send_all(&self, all: &Pipeline, owned: &[u8]) -> RedisResult<Vec<Value>> {
        let (mut connection, generation) = self.connection().await?;
        let replies = connection.send_all(all, owned).await;
        self.drop_if_broken(replies, generation).await
    }

    async fn send_to(&self, cmd: &Cmd, owned: Option<&[u8]>) -> RedisResult<Value> {
        let (mut connection, generation) = self.connection().await?;
        let reply = connection.send(cmd, owned).await;
        self.drop_if_broken(reply, generation).await
    }

    async fn drop_if_broken<T>(&self, reply: RedisResult<T>, generation: u64) -> RedisResult<T> {
        if reply.as_ref().is_err_and(is_broken) {
            let mut state = self.state.lock().await;
            if self.generation.load(Ordering::Relaxed) == generation {
                state.connection = None;
            }
        }
        reply
    }

    /// On a cluster, requests may be sent twice.
    pub(super) fn is_cluster(&self) -> bool {
        self.address.is_cluster
    }

    /// Runs a script by its hash, or by its text if the server has not cached it. `add_args` adds its keys and arguments.
    pub(super) async fn run(
        &self,
        script: &Script,
        add_args: impl Fn(&mut Cmd),
    ) -> RedisResult<Value> {
        let call = |name: &str, body: &str| {
            let mut cmd = redis::cmd(name);
            cmd.arg(body);
            add_args(&mut cmd);
            cmd
        };
        let cmd = call("EVALSHA", &script.sha);
        match self.send(&cmd).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(&call("EVAL", script.text)).await
            }
            reply => reply,
        }
    }

    async fn connection(&self) -> RedisResult<(Connection, u64)> {
        let mut state = self.state.lock().await;
        if let Some(leader) = &self.leader {
            let generation = leader.load(Ordering::Relaxed);
            if mem::replace(&mut state.followed, generation) != generation {
                state.connection = None;
            }
        }
        if let Some(connection) = &state.connection {
            return Ok((connection.clone(), self.generation.load(Ordering::Relaxed)));
        }
        if state.backoff.is_waiting() {
            return Err(std::io::Error::other(BACKING_OFF).into());
        }
        match Connection::open(&self.address, None).await {
            Ok(connection) => {
                state.connection = Some(connection.clone());
                state.backoff.reset();
                let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
                Ok((connection, generation))
            }
            Err(error) => {
                state.backoff.failed();
                Err(error)
            }
        }
    }
}

/// Whether the connection must be replaced: it broke, or leads to a server that no longer accepts writes.
fn is_broken(error: &RedisError) -> bool {
    is_outcome_unknown(error)
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::ClusterConnectionNotFound
                | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}

/// Whether the server may have executed the request although no reply came.
pub(super) fn is_outcome_unknown(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_timeout()
}
