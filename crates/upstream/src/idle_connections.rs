//! Idle connections, kept for calls that cost nothing (polls, reports, balance).
//! Submissions never come here: each opens its own connection (submit.rs).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{
    ports::{Clock, Fault},
    time::Timestamp,
};
use http::Request;
use http_body_util::Full;
use parking_lot::Mutex;

use crate::{
    connect::Connector,
    connection::{Bounds, Connection},
    counted::BytesSent,
};

/// Shorter than the idle timeout of common servers.
const KEEP: Duration = Duration::from_secs(30);

const MAX_IDLE: usize = 64;

/// The most recently used connection is last.
pub(crate) struct IdleConnections {
    idle: Mutex<Vec<Idle>>,
    clock: Arc<dyn Clock>,
}

struct Idle {
    connection: Connection,
    since: Timestamp,
}

// === impl IdleConnections ===

impl IdleConnections {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { idle: Mutex::default(), clock }
    }

    /// Sends one request, over an idle connection if there is one. The caller bounds the total time.
    pub(crate) async fn send(
        &self,
        connector: &Connector,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Bytes, Fault> {
        let connection = match self.take() {
            Some(connection) => connection,
            None => connector.open(BytesSent::default()).await?,
        };
        let exchanged = connection.send(request, bounds).await?;
        if let Some(connection) = exchanged.connection {
            self.put(connection);
        }
        Ok(exchanged.body)
    }

    fn take(&self) -> Option<Connection> {
        let oldest = self.clock.now().minus(KEEP);
        let mut idle = self.idle.lock();
        idle.retain(|kept| kept.since >= oldest);
        while let Some(mut kept) = idle.pop() {
            if kept.connection.is_open() {
                return Some(kept.connection);
            }
        }
        None
    }

    fn put(&self, connection: Connection) {
        let since = self.clock.now();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(Idle { connection, since });
        }
    }
}
