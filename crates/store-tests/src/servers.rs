//! Private servers for the tests of the shared stores: real Redis, PostgreSQL and DynamoDB-compatible processes on
//! loopback, and proxies that break connections. A test starts the servers it needs, and they stop with it, however it
//! ends.
//!
//! Everything here blocks the thread, mostly for milliseconds, because a test can do nothing before its server is up.

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

/// The Redis shared by all tests of this process that break nothing; without persistence.
/// [`crate::connect_to_corner`] gives each test its own key prefix.
pub fn shared_redis() -> &'static RedisServer {
    static SHARED: OnceLock<RedisServer> = OnceLock::new();
    SHARED.get_or_init(|| RedisServer::start(&RedisOptions::default()))
}

/// The Redis cluster shared by all tests that break nothing: three masters, no replicas.
pub fn shared_cluster() -> &'static RedisCluster {
    static SHARED: OnceLock<RedisCluster> = OnceLock::new();
    SHARED.get_or_init(|| RedisCluster::start(Replicas::None))
}

/// The PostgreSQL shared by all tests that break nothing; it keeps nothing on disk.
pub fn shared_postgres() -> &'static PostgresServer {
    static SHARED: OnceLock<PostgresServer> = OnceLock::new();
    SHARED.get_or_init(|| PostgresServer::start(&PostgresOptions::default()))
}

/// A `PgBouncer` before [`shared_postgres`].
pub fn shared_bouncer() -> &'static PgBouncer {
    static SHARED: OnceLock<PgBouncer> = OnceLock::new();
    SHARED.get_or_init(|| PgBouncer::start(shared_postgres()))
}

/// The URL of [`shared_postgres`] through [`shared_bouncer`].
pub fn pooled_postgres_url() -> String {
    through_pooler(&shared_bouncer().url(), shared_postgres())
}

/// The DynamoDB-compatible server shared by all tests that break nothing.
pub fn shared_dynamodb() -> &'static DynamoDbServer {
    static SHARED: OnceLock<DynamoDbServer> = OnceLock::new();
    SHARED.get_or_init(DynamoDbServer::start)
}
