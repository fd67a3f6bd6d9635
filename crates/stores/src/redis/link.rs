//! Connections: made when needed, shared by everybody, dropped when they fail, and made again after a pause that grows.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, PushInfo, RedisError, RedisResult,
    ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};
use rustls::crypto::{CryptoProvider, ring};
use tokio::{
    sync::{Mutex, OnceCell, mpsc::UnboundedSender},
    time::Instant,
};

use crate::remote::pause;

use super::address::Address;

/// One connection, or one to each node of a cluster. Requests share it.
#[derive(Clone)]
pub(super) enum Link {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// A link that comes back.
pub(super) struct Line {
    address: Address,
    state: Mutex<State>,
    /// Where its keys are; that never changes, only who has them.
    slot: OnceCell<u16>,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// Which of the links made so far it is.
    made: u64,
    failures: u32,
    not_before: Option<Instant>,
}

/// A script and the name the server knows it by.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) text: &'static str,
    pub(super) sha: String,
}

/// A server that does not answer within this is away.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

// === impl Link ===

impl Link {
    /// Connects. What the server pushes goes to `pushed`.
    pub(super) async fn open(
        address: &Address,
        pushed: Option<UnboundedSender<PushInfo>>,
    ) -> RedisResult<Self> {
        if address.is_over_tls() {
            choose_cryptography();
        }
        if address.is_cluster {
            return Self::open_cluster(address, pushed).await;
        }
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        if let Some(pushed) = pushed {
            config = config.set_push_sender(pushed);
        }
        let node = address.nodes.first().cloned().ok_or_else(nowhere)?;
        let client = match address.certificates() {
            Some(certificates) => Client::build_with_tls(node, certificates)?,
            None => Client::open(node)?,
        };
        Ok(Self::Single(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    async fn open_cluster(
        address: &Address,
        pushed: Option<UnboundedSender<PushInfo>>,
    ) -> RedisResult<Self> {
        let mut builder = ClusterClientBuilder::new(address.nodes.clone())
            .use_protocol(redis::ProtocolVersion::RESP3)
            .connection_timeout(PATIENCE)
            .response_timeout(PATIENCE)
            // A moved slot is followed. A lost request is sent again, too: on a cluster every turn may come twice.
            .retries(2);
        if let Some(node) = address.nodes.first() {
            builder = builder.tcp_settings(node.tcp_settings().clone());
        }
        if let Some(certificates) = address.certificates() {
            builder = builder.certs(certificates);
        }
        if let Some(pushed) = pushed {
            builder = builder.push_sender(pushed);
        }
        let connecting = builder.build()?;
        let connecting = connecting.get_async_connection();
        match tokio::time::timeout(2 * PATIENCE, connecting).await {
            Ok(connection) => Ok(Self::Cluster(connection?)),
            Err(_) => Err(late()),
        }
    }

    /// Sends a request; the answer comes within the patience or not at all.
    pub(super) async fn ask(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        let answer = async {
            match self {
                Self::Single(connection) => connection.req_packed_command(cmd).await,
                Self::Cluster(connection) => connection.req_packed_command(cmd).await,
            }
        };
        let answer = tokio::time::timeout(2 * PATIENCE, answer).await;
        answer.unwrap_or_else(|_| Err(late()))?.extract_error()
    }

    /// Sends a request that names no key to the server that has this one.
    pub(super) async fn ask_owner(&mut self, cmd: &Cmd, key: &[u8]) -> RedisResult<Value> {
        let slot = self.slot_of(key).await?;
        self.ask_slot(cmd, slot).await
    }

    async fn slot_of(&mut self, key: &[u8]) -> RedisResult<u16> {
        match self {
            Self::Single(_) => Ok(0),
            Self::Cluster(_) => {
                let slot = self.ask(redis::cmd("CLUSTER").arg("KEYSLOT").arg(key)).await?;
                Ok(redis::from_redis_value(slot)?)
            }
        }
    }

    /// Sends a request that names no key to the server that has this slot.
    async fn ask_slot(&mut self, cmd: &Cmd, slot: u16) -> RedisResult<Value> {
        let Self::Cluster(connection) = self else { return self.ask(cmd).await };
        let route = Route::new(slot, SlotAddr::Master);
        let route = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
        let answer =
            tokio::time::timeout(2 * PATIENCE, connection.route_command(cmd.clone(), route));
        answer.await.unwrap_or_else(|_| Err(late()))?.extract_error()
    }

    /// Listens on a channel.
    pub(super) async fn subscribe(&mut self, channel: &[u8]) -> RedisResult<()> {
        match self {
            Self::Single(connection) => connection.subscribe(channel).await,
            Self::Cluster(connection) => connection.ssubscribe(channel).await,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

/// The client takes whatever cryptography the process has chosen, and panics where none was.
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may have been quicker, and that is as good.
        drop(ring::default_provider().install_default());
    }
}

fn nowhere() -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "no address"))
}

fn late() -> RedisError {
    RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))
}

// === impl Line ===

impl Line {
    pub(super) fn new(address: Address) -> Self {
        Self { address, state: Mutex::default(), slot: OnceCell::new() }
    }

    /// Sends a request on the link there is, or on a new one. A failure may mean that the request was carried out.
    pub(super) async fn ask(&self, cmd: &Cmd) -> RedisResult<Value> {
        let (mut link, made) = self.link().await?;
        let answer = link.ask(cmd).await;
        self.drop_if_broken(&answer, made).await;
        answer
    }

    /// Sends a request that names no key to the server that has this one. All keys of a line lie in one slot.
    pub(super) async fn ask_owner(&self, cmd: &Cmd, key: &[u8]) -> RedisResult<Value> {
        let (mut link, made) = self.link().await?;
        let slot = self.slot.get_or_try_init(async || link.clone().slot_of(key).await).await;
        let answer = match slot {
            Ok(slot) => link.ask_slot(cmd, *slot).await,
            Err(error) => Err(error),
        };
        self.drop_if_broken(&answer, made).await;
        answer
    }

    /// Whether requests may be sent twice.
    pub(super) fn is_cluster(&self) -> bool {
        self.address.is_cluster
    }

    /// Runs a script, which the server is told in full when it does not know it. `fill` adds its keys and arguments.
    pub(super) async fn run(&self, which: &Script, fill: impl Fn(&mut Cmd)) -> RedisResult<Value> {
        let call = |name: &str, how: &str| {
            let mut cmd = redis::cmd(name);
            cmd.arg(how);
            fill(&mut cmd);
            cmd
        };
        let cmd = call("EVALSHA", &which.sha);
        match self.ask(&cmd).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.ask(&call("EVAL", which.text)).await
            }
            answer => answer,
        }
    }

    async fn link(&self) -> RedisResult<(Link, u64)> {
        let mut state = self.state.lock().await;
        if let Some(link) = &state.link {
            return Ok((link.clone(), state.made));
        }
        // Everybody who asks meanwhile is told so at once: nobody queues up before a closed door.
        if state.not_before.is_some_and(|at| Instant::now() < at) {
            return Err(
                std::io::Error::other("it did not answer and is asked again in a moment").into()
            );
        }
        match Link::open(&self.address, None).await {
            Ok(link) => {
                *state =
                    State { link: Some(link.clone()), made: state.made + 1, ..State::default() };
                Ok((link, state.made))
            }
            Err(error) => {
                state.failures += 1;
                state.not_before = Some(Instant::now() + pause(state.failures));
                Err(error)
            }
        }
    }

    async fn drop_if_broken(&self, answer: &RedisResult<Value>, made: u64) {
        if answer.as_ref().is_err_and(is_broken) {
            let mut state = self.state.lock().await;
            if state.made == made {
                state.link = None;
            }
        }
    }
}

/// Whether the connection is of no more use: it broke, or leads to a server that no longer writes.
fn is_broken(error: &RedisError) -> bool {
    let kind = error.kind();
    error.is_io_error()
        || error.is_connection_dropped()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        || matches!(
            kind,
            ErrorKind::ClusterConnectionNotFound
                | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}

/// Whether the request may have been carried out although no answer came.
pub(super) fn is_uncertain(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_timeout()
}
