//! Checks that the port is free, or that a gateway answers there.

use std::{io, net::SocketAddr};

use domain::secret::Secret;
use stores::Finding;
use tokio::net::TcpListener;

use super::Check;
use crate::{
    client::{Call, Remote},
    commands::serve::CERTIFICATE,
    config::{Config, Tls},
};

pub(super) async fn examine(config: &Config) -> Check {
    let listen = config.listen;
    let finding = match TcpListener::bind(listen).await {
        Ok(_) => Finding::good(format!("{listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if is_gateway(config, listen).await {
                Finding::good(format!("a gateway answers on {listen}"))
            } else {
                Finding::bad(
                    format!("{listen} is in use by another program"),
                    "stop that program, or choose another port with --listen or `listen`",
                )
            }
        }
        Err(error) => Finding::bad(
            format!("cannot listen on {listen}: {error}"),
            "choose an address of this machine and a port from 1024 up, with --listen or `listen`",
        ),
    };
    Check::outside("port", finding)
}

async fn is_gateway(config: &Config, listen: SocketAddr) -> bool {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let cacert = match (&config.tls, &config.data) {
        (Some(Tls::Files { cert, .. }), _) => Some(cert.clone()),
        (Some(Tls::SelfSigned), Some(data)) => Some(data.join(CERTIFICATE)),
        (Some(Tls::SelfSigned) | None, _) => None,
    };
    // The program on this port may be anything, so it gets no real key.
    let no_key = Secret::new("doctor");
    let Ok(remote) = Remote::new(&format!("{scheme}://{listen}"), no_key, cacert.as_deref()) else {
        return false;
    };
    let reply = remote.send(&Call::get("/readyz")).await;
    reply.is_ok_and(|reply| reply.body.get("state").is_some_and(serde_json::Value::is_string))
}
