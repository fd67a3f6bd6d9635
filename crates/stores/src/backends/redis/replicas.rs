//! Whether a write is replicated. Where the server has replicas, money is spent only on writes that one of them has confirmed.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    health::{self, Replication},
    server::RedisServer,
};

#[derive(Debug)]
pub(super) struct Replicas {
    /// The replication id of the server they belong to.
    server: String,
    /// When a replica was last seen.
    seen: Option<Instant>,
    checked: Instant,
}

/// A server that had a replica is not trusted alone for this long: it may be a master that was cut off.
const EXPECTED_FOR: Duration = Duration::from_secs(60);
const CHECK_EVERY: Duration = Duration::from_secs(2);

impl Replicas {
    pub(super) fn new(found: Replication) -> Self {
        let now = Instant::now();
        let seen = (found.replicas > 0).then_some(now);
        Self { server: found.server, seen, checked: now }
    }

    /// Whether a replica has everything that was written so far, or the server has it and has no replicas.
    pub(super) async fn confirm(&mut self, server: &RedisServer) -> bool {
        let before = self.server.clone();
        let is_known = self.checked.elapsed() < CHECK_EVERY || self.check(server).await;
        if !is_known {
            return false;
        }
        if self.are_expected(Instant::now()) {
            if server.is_replicated().await.unwrap_or(false) {
                return true;
            }
            // The server that had replicas may be dead, and this one the replica that took over.
            if !self.check(server).await || self.are_expected(Instant::now()) {
                return false;
            }
        }
        // A replica that took over may lack the last writes of its master.
        self.server == before || server.has_last_commit().await.unwrap_or(false)
    }

    fn are_expected(&self, now: Instant) -> bool {
        self.seen.is_some_and(|at| now - at <= EXPECTED_FOR)
    }

    /// Asks the server for its id and its replicas. Returns `false` when it does not answer.
    async fn check(&mut self, server: &RedisServer) -> bool {
        let found = health::replication_of(&server.connection, &server.names.meta()).await;
        let Ok(found) = found else { return false };
        self.update(found, Instant::now());
        true
    }

    fn update(&mut self, found: Replication, now: Instant) {
        if found.server != self.server {
            // A replica that took over has lost its master, but no replica of its own.
            self.server = found.server;
            self.seen = None;
        }
        if found.replicas > 0 {
            self.seen = Some(now);
        }
        self.checked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(server: &str, replicas: u64) -> Replication {
        Replication { server: server.into(), replicas }
    }

    #[test]
    fn a_server_that_had_a_replica_is_not_trusted_alone_for_a_minute() {
        let mut replicas = Replicas::new(found("a", 1));
        let now = Instant::now();
        replicas.update(found("a", 0), now);
        assert!(replicas.are_expected(now));
        assert!(!replicas.are_expected(now + EXPECTED_FOR + CHECK_EVERY));
    }

    #[test]
    fn one_that_took_over_is_trusted_alone_until_it_has_a_replica() {
        let mut replicas = Replicas::new(found("a", 1));
        let now = Instant::now();
        replicas.update(found("b", 0), now);
        assert!(!replicas.are_expected(now));
        replicas.update(found("b", 1), now);
        assert!(replicas.are_expected(now));
    }
}
