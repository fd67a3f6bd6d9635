//! Whether money may be spent on what was just written: where the server has replicas, one of them must have it.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    examine::{self, Replication},
    server::Server,
};

/// What is known of the server's replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    /// The server they were of.
    server: String,
    /// When there was last one.
    seen: Option<Instant>,
    looked: Instant,
}

/// A server that had a replica is not trusted alone so soon: it may be the one that was cut off.
const MOURNING: Duration = Duration::from_secs(60);
/// How often a server is looked at.
const LOOKS: Duration = Duration::from_secs(2);

impl Replicas {
    /// As they were found.
    pub(super) fn new(found: Replication) -> Self {
        let now = Instant::now();
        let seen = (found.replicas > 0).then_some(now);
        Self { server: found.server, seen, looked: now }
    }

    /// Whether a replica has everything that was written until now, or there is none.
    pub(super) async fn have_it(&mut self, server: &Server) -> bool {
        let is_known = self.looked.elapsed() < LOOKS || self.look(server).await;
        if !is_known {
            return false;
        }
        if !self.are_expected(Instant::now()) || server.is_replicated().await.unwrap_or(false) {
            return true;
        }
        // The server that had them may be dead, and this one the replica that took over.
        self.look(server).await && !self.are_expected(Instant::now())
    }

    fn are_expected(&self, now: Instant) -> bool {
        self.seen.is_some_and(|at| now - at <= MOURNING)
    }

    /// Looks who the server is and whom it has. `false`: it does not say.
    async fn look(&mut self, server: &Server) -> bool {
        let Ok(found) = examine::replication_of(&server.line, &server.names.head()).await else {
            return false;
        };
        self.saw(found, Instant::now());
        true
    }

    fn saw(&mut self, found: Replication, now: Instant) {
        if found.server != self.server {
            // One that took over has lost its master, not its replicas.
            self.server = found.server;
            self.seen = None;
        }
        if found.replicas > 0 {
            self.seen = Some(now);
        }
        self.looked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(server: &str, replicas: u64) -> Replication {
        Replication { server: server.into(), replicas }
    }

    #[test]
    fn a_server_that_had_a_replica_is_not_trusted_alone_so_soon() {
        let mut replicas = Replicas::new(found("a", 1));
        let now = Instant::now();
        replicas.saw(found("a", 0), now);
        assert!(replicas.are_expected(now));
        assert!(!replicas.are_expected(now + MOURNING + LOOKS));
    }

    #[test]
    fn one_that_took_over_is_trusted_alone_until_it_has_a_replica() {
        let mut replicas = Replicas::new(found("a", 1));
        let now = Instant::now();
        replicas.saw(found("b", 0), now);
        assert!(!replicas.are_expected(now));
        replicas.saw(found("b", 1), now);
        assert!(replicas.are_expected(now));
    }
}
