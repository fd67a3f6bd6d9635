//! The three servers as one, with a way of its own from each gateway to the server, on which requests and replies are lost,
//! late or refused.

use std::time::Duration;

use store_tests::servers::{
    DynamoDbServer, FaultProxy, Faults, HttpProxy, Persistence, PostgresOptions, PostgresServer,
    RedisOptions, RedisServer, dynamodb_url,
};

use super::super::fleet::GATEWAYS;
use crate::support::pause;

/// A server that keeps every acknowledged write when it is killed.
pub(super) enum Server {
    Redis(RedisServer),
    Postgres(PostgresServer),
    DynamoDb(DynamoDbServer),
}

/// What lies between one gateway and the server.
pub(super) struct Way {
    /// Breaks connections.
    pub(super) wire: FaultProxy,
    /// Refuses requests, behind the wire; only DynamoDB's are told apart.
    requests: Option<HttpProxy>,
}

/// The server, and the ways to it by gateway.
pub(super) struct Site {
    server: Server,
    ways: Vec<Way>,
}

/// Compaction after so many commits, so that gateways are killed during some.
const DYNAMODB_OPTIONS: &str = "&file_every=100";
const TABLE: &str = "shop";

// === impl Server ===

impl Server {
    pub(super) fn redis() -> Self {
        let persistence = Persistence::Always;
        Self::Redis(RedisServer::start(&RedisOptions { persistence, ..RedisOptions::default() }))
    }

    pub(super) fn postgres() -> Self {
        let options = PostgresOptions { durable: true, ..PostgresOptions::default() };
        Self::Postgres(PostgresServer::start(&options))
    }

    pub(super) fn dynamodb() -> Self {
        Self::DynamoDb(DynamoDbServer::start_durable())
    }

    fn port(&self) -> u16 {
        match self {
            Self::Redis(server) => server.port(),
            Self::Postgres(server) => server.port(),
            Self::DynamoDb(server) => server.port(),
        }
    }

    /// The URL of the store on the server, or on something before it.
    fn url(&self, port: u16) -> String {
        match self {
            Self::Redis(_) => format!("redis://127.0.0.1:{port}"),
            Self::Postgres(_) => format!("postgres://postgres@127.0.0.1:{port}/postgres"),
            Self::DynamoDb(_) => format!("{}{DYNAMODB_OPTIONS}", dynamodb_url(port, TABLE)),
        }
    }

    /// Kills it and starts it again after a time.
    async fn restart(&self, down: Duration) {
        match self {
            Self::Redis(server) => server.kill(),
            Self::Postgres(server) => server.crash(),
            Self::DynamoDb(server) => server.kill(),
        }
        pause(down).await;
        match self {
            Self::Redis(server) => server.restart(),
            Self::Postgres(server) => server.restart(),
            Self::DynamoDb(server) => server.restart(),
        }
    }
}

// === impl Site ===

impl Site {
    pub(super) async fn open(server: Server, seed: u64) -> Self {
        if matches!(server, Server::DynamoDb(_)) {
            stores::migrate(&server.url(server.port())).await.unwrap();
        }
        let way = |number| Way::to(&server, seed + number);
        let ways = (0..).map(way).take(GATEWAYS).collect();
        Self { server, ways }
    }

    /// The store without anything in between.
    pub(super) fn url(&self) -> String {
        self.server.url(self.server.port())
    }

    /// The store as each gateway sees it.
    pub(super) fn urls(&self) -> Vec<String> {
        self.ways.iter().map(|way| self.server.url(way.wire.port())).collect()
    }

    pub(super) fn way(&self, gateway: usize) -> &Way {
        &self.ways[gateway]
    }

    /// Whether requests can be refused one by one.
    pub(super) fn can_throttle(&self) -> bool {
        matches!(self.server, Server::DynamoDb(_))
    }

    pub(super) async fn restart_server(&self, down: Duration) {
        self.server.restart(down).await;
    }
}

// === impl Way ===

impl Way {
    fn to(server: &Server, seed: u64) -> Self {
        let requests = match server {
            Server::Redis(_) | Server::Postgres(_) => None,
            Server::DynamoDb(server) => Some(HttpProxy::start(server.port(), seed)),
        };
        let next = requests.as_ref().map_or(server.port(), HttpProxy::port);
        Self { wire: FaultProxy::start(next), requests }
    }

    /// Refuses this share of the requests, in percent, and answers some others wrongly.
    pub(super) fn throttle(&self, throttled: u8) {
        let faults =
            Faults { throttled, conflicts: 5, failed_after: 5, lost: 5, ..Faults::default() };
        if let Some(requests) = &self.requests {
            requests.set(faults);
        }
    }

    pub(super) fn heal(&self) {
        self.wire.heal();
        if let Some(requests) = &self.requests {
            requests.set(Faults::default());
        }
    }
}
