//! Private servers for the tests of the shared stores: real Redis, PostgreSQL and DynamoDB-compatible processes on loopback, and a proxy that breaks
//! connections on purpose. Each is started by the test that needs it and ends with it, however the test ends.
//!
//! Everything here blocks, a few milliseconds mostly: a test has nothing better to do than to wait for its server.

mod cluster;
mod dynamodb;
mod http_proxy;
mod postgres;
mod process;
mod proxy;
mod redis;

use std::sync::OnceLock;

pub use cluster::{RedisCluster, Replicas};
pub use dynamodb::{DynamoDbServer, dynamodb_server, url as dynamodb_url};
pub use http_proxy::{Faults, HttpProxy};
pub use postgres::{PgBouncer, PostgresOptions, PostgresServer, through_pooler};
pub use process::{free_port, wait_for};
pub use proxy::FaultProxy;
pub use redis::{Persistence, RedisOptions, RedisServer};

/// The one server of this test process for cases that break nothing; without persistence.
/// Each case takes a corner of its own there: [`crate::connect_to_corner`].
pub fn shared_redis() -> &'static RedisServer {
    static SHARED: OnceLock<RedisServer> = OnceLock::new();
    SHARED.get_or_init(|| RedisServer::start(&RedisOptions::default()))
}

/// The one cluster of this test process for cases that break nothing: three masters, no replicas.
pub fn shared_cluster() -> &'static RedisCluster {
    static SHARED: OnceLock<RedisCluster> = OnceLock::new();
    SHARED.get_or_init(|| RedisCluster::start(Replicas::None))
}

/// The one PostgreSQL server of this test process for cases that break nothing; nothing of it is on the disk.
pub fn shared_postgres() -> &'static PostgresServer {
    static SHARED: OnceLock<PostgresServer> = OnceLock::new();
    SHARED.get_or_init(|| PostgresServer::start(&PostgresOptions::default()))
}

/// A pooler before it.
pub fn shared_bouncer() -> &'static PgBouncer {
    static SHARED: OnceLock<PgBouncer> = OnceLock::new();
    SHARED.get_or_init(|| PgBouncer::start(shared_postgres()))
}

/// [`shared_postgres`] through [`shared_bouncer`].
pub fn pooled_postgres_url() -> String {
    through_pooler(&shared_bouncer().url(), shared_postgres())
}

/// The one server that speaks DynamoDB of this test process for cases that break nothing.
pub fn shared_dynamodb() -> &'static DynamoDbServer {
    static SHARED: OnceLock<DynamoDbServer> = OnceLock::new();
    SHARED.get_or_init(DynamoDbServer::start)
}
