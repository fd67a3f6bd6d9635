//! Ports that no other process can take. A free port that is found, released and used later may be taken by then.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A port that refuses connections as long as this exists: it is bound, and nothing listens.
pub(crate) struct ClosedPort {
    _held: Socket,
    port: u16,
}

/// An address that is known before the process behind it runs, and forwards to it.
pub(crate) struct Forward {
    listener: TcpListener,
}

// === impl ClosedPort ===

impl ClosedPort {
    pub(crate) fn hold() -> Self {
        let held = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        held.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let port = held.local_addr().unwrap().as_socket().unwrap().port();
        Self { _held: held, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

// === impl Forward ===

impl Forward {
    pub(crate) async fn open() -> Self {
        Self { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    /// Forwards everything to this host until the result is dropped.
    pub(crate) fn to(self, host: &str) -> JoinSet<()> {
        let host = host.to_owned();
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = self.listener.accept().await {
                let mut to = TcpStream::connect(&host).await.unwrap();
                // Either side may close the connection; the other one notices.
                connections.spawn(async move { copy_bidirectional(&mut from, &mut to).await.ok() });
            }
        });
        passing
    }
}
