//! Checks that the port is free, or that a gateway answers there.

use std::{io, net::SocketAddr};

use domain::secret::Secret;
use serde_json::Value;
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
            match ask_gateway(config, listen).await {
                Some(state) => match held_up(&state) {
                    Some((what, remedy)) => {
                        Finding::risky(format!("a gateway answers on {listen}, and {what}"), remedy)
                    }
                    None => Finding::good(format!("a gateway answers on {listen}")),
                },
                None => Finding::bad(
                    format!("{listen} is in use by another program"),
                    "stop that program, or choose another port with --listen or `listen`",
                ),
            }
        }
        Err(error) => Finding::bad(
            format!("cannot listen on {listen}: {error}"),
            "choose an address of this machine and a port from 1024 up, with --listen or `listen`",
        ),
    };
    Check::outside("port", finding)
}

/// What `/readyz` calls a part that holds up work, what is paused because of it, and the remedy.
const HELD_UP: [(&str, &str, &str); 4] = [
    (
        "paused",
        "submissions are paused",
        "see who paused what with `solvegate pause --list --server URL`; `solvegate resume` ends it",
    ),
    (
        "polling",
        "polling of paid tasks is paused: the service refuses it",
        "`/readyz` with an admin key shows the code and the next probe; check [upstream] key",
    ),
    (
        "account",
        "submissions are paused because of the account; paid tasks are polled on",
        "`/readyz` with an admin key shows the code and the next probe; put the account in order",
    ),
    (
        "provider",
        "submissions are paused because the service is away; paid tasks are polled on",
        "`/readyz` with an admin key shows the next probe; check the service and the network",
    ),
];

/// The first part that holds up work.
fn held_up(readiness: &Value) -> Option<(&'static str, &'static str)> {
    let troubles = readiness["troubles"].as_array()?;
    let found = HELD_UP.iter().find(|(name, _, _)| troubles.iter().any(|word| word == name))?;
    Some((found.1, found.2))
}

/// What the program on the port says to `/readyz`, if it is a gateway.
async fn ask_gateway(config: &Config, listen: SocketAddr) -> Option<Value> {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let cacert = match (&config.tls, &config.data) {
        (Some(Tls::Files { cert, .. }), _) => Some(cert.clone()),
        (Some(Tls::SelfSigned), Some(data)) => Some(data.join(CERTIFICATE)),
        (Some(Tls::SelfSigned) | None, _) => None,
    };
    // The program on this port may be anything, so it gets no real key.
    let no_key = Secret::new("doctor");
    let remote = Remote::new(&format!("{scheme}://{listen}"), no_key, cacert.as_deref()).ok()?;
    let readiness = remote.send(&Call::get("/readyz")).await.ok()?.body;
    readiness.get("state").is_some_and(Value::is_string).then_some(readiness)
}
