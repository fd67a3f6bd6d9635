//! The port: is it free, or is it a gateway that has it?

use std::{io, net::SocketAddr};

use domain::secret::Secret;
use stores::Finding;
use tokio::net::TcpListener;

use super::Line;
use crate::{
    client::{Call, Remote},
    commands::serve::CERTIFICATE,
    config::{Config, Tls},
};

pub(super) async fn examine(config: &Config) -> Line {
    let listen = config.listen;
    let finding = match TcpListener::bind(listen).await {
        Ok(_) => Finding::good(format!("{listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => in_use(config, listen).await,
        Err(error) => Finding::bad(
            format!("{listen} cannot be listened on: {error}"),
            "choose an address of this machine and a port from 1024 up, with --listen or listen =",
        ),
    };
    Line::outside("port", finding)
}

async fn in_use(config: &Config, listen: SocketAddr) -> Finding {
    if is_gateway(config, listen).await {
        return Finding::good(format!("{listen} has a gateway that answers"));
    }
    Finding::bad(
        format!("{listen} is in use by another program"),
        "stop that one, or choose another port with --listen or listen =",
    )
}

async fn is_gateway(config: &Config, listen: SocketAddr) -> bool {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let cacert = match (&config.tls, &config.data) {
        (Some(Tls::Files { cert, .. }), _) => Some(cert.clone()),
        (Some(Tls::SelfSigned), Some(data)) => Some(data.join(CERTIFICATE)),
        (Some(Tls::SelfSigned) | None, _) => None,
    };
    // No key is shown: it need not be one of ours.
    let nobody = Secret::new("doctor");
    let Ok(remote) = Remote::new(&format!("{scheme}://{listen}"), nobody, cacert.as_deref()) else {
        return false;
    };
    let reply = remote.send(&Call::get("/readyz")).await;
    reply.is_ok_and(|reply| reply.body.get("state").is_some_and(serde_json::Value::is_string))
}
