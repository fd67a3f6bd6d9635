//! Bells across gateways (`remote::bell`): a ring is published, and what is published rings here.

use std::sync::Arc;

use domain::{id::ClaimId, ports::Doorbell as _};
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    LocalDoorbell,
    remote::{bell::FarDoorbell, pause},
};

use super::{
    address::Address,
    layout::Names,
    link::{Line, Link},
};

/// Rings in one message.
const CROWD: usize = 500;

/// Starts to listen and to tell. Both end when the bell is dropped.
pub(super) fn start(address: Address, line: Arc<Line>, names: &Names) -> FarDoorbell {
    let local = Arc::new(LocalDoorbell::new());
    let (channel, cluster) = (names.bell(), address.is_cluster);
    let listener = tokio::spawn(listen(Arc::clone(&local), address, channel.clone()));
    let (bell, rings) = FarDoorbell::new(local, listener.abort_handle());
    tokio::spawn(tell(rings, line, channel, cluster));
    bell
}

// === telling ===

async fn tell(
    mut rings: UnboundedReceiver<ClaimId>,
    line: Arc<Line>,
    channel: Vec<u8>,
    cluster: bool,
) {
    let mut crowd = Vec::new();
    while rings.recv_many(&mut crowd, CROWD).await > 0 {
        let numbers: Vec<u8> =
            crowd.drain(..).flat_map(|claim: ClaimId| claim.number().to_be_bytes()).collect();
        let mut cmd = redis::cmd(if cluster { "SPUBLISH" } else { "PUBLISH" });
        cmd.arg(&channel).arg(numbers);
        if let Err(error) = line.ask(&cmd).await {
            tracing::debug!(error = error.category(), "failed to publish claim notifications");
        }
    }
}

// === listening ===

async fn listen(local: Arc<LocalDoorbell>, address: Address, channel: Vec<u8>) {
    let mut failures = 0;
    loop {
        let (pushed, mut news) = unbounded_channel();
        match subscribe(&address, pushed, &channel).await {
            Ok(_link) => {
                failures = 0;
                while let Some(push) = news.recv().await {
                    if push.kind == PushKind::Disconnection {
                        break;
                    }
                    heard(&local, &push);
                }
            }
            Err(error) => tracing::debug!(
                error = error.category(),
                "claim notifications disconnected, reconnecting with backoff"
            ),
        }
        failures += 1;
        tokio::time::sleep(pause(failures)).await;
    }
}

async fn subscribe(
    address: &Address,
    pushed: UnboundedSender<PushInfo>,
    channel: &[u8],
) -> redis::RedisResult<Link> {
    let mut link = Link::open(address, Some(pushed)).await?;
    link.subscribe(channel).await?;
    Ok(link)
}

fn heard(local: &LocalDoorbell, push: &PushInfo) {
    if !matches!(push.kind, PushKind::Message | PushKind::SMessage) {
        return;
    }
    if let Some(Value::BulkString(numbers)) = push.data.last() {
        for number in numbers.as_chunks::<8>().0 {
            local.ring(ClaimId::from_number(u64::from_be_bytes(*number)));
        }
    }
}
