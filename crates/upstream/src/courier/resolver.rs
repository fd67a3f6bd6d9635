//! Where a name's addresses come from: the system, or a test.

use std::{io, net::SocketAddr};

use async_trait::async_trait;

/// Resolves names. Nothing is remembered: what a name resolves to changes.
#[async_trait]
pub(super) trait Resolver: Send + Sync {
    /// All addresses of a name, with this port.
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The system's resolver.
pub(super) struct System;

#[async_trait]
impl Resolver for System {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((name, port)).await?.collect())
    }
}
