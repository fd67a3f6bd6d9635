//! Claim notifications between gateways (`optimistic/notify.rs`), with `PUBLISH` and `SUBSCRIBE`.

use std::sync::Arc;

use domain::{id::ClaimId, ports::Notifier as _};
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::{
    LocalNotifier, backends::server::backoff::Backoff, optimistic::notify::RemoteNotifier,
};

use super::{
    address::RedisAddress,
    connection::{Connection, ReconnectingConnection},
    layout::KeyNames,
};

/// Claims in one message.
const MAX_CLAIMS: usize = 500;

/// Starts the subscriber and the publisher. Both end when the notifier is dropped.
pub(super) fn start(
    address: RedisAddress,
    connection: ReconnectingConnection,
    names: &KeyNames,
) -> RemoteNotifier {
    let local = Arc::new(LocalNotifier::new());
    let channel = names.notifications();
    let subscriber = tokio::spawn(subscribe(Arc::clone(&local), address, channel.clone()));
    let (notifier, claims) = RemoteNotifier::new(local, subscriber.abort_handle());
    tokio::spawn(publish(claims, connection, channel));
    notifier
}

async fn publish(
    mut claims: UnboundedReceiver<ClaimId>,
    connection: ReconnectingConnection,
    channel: Vec<u8>,
) {
    let mut batch = Vec::new();
    while claims.recv_many(&mut batch, MAX_CLAIMS).await > 0 {
        let numbers: Vec<u8> =
            batch.drain(..).flat_map(|claim: ClaimId| claim.number().to_be_bytes()).collect();
        let mut cmd = redis::cmd(if connection.is_cluster() { "SPUBLISH" } else { "PUBLISH" });
        cmd.arg(&channel).arg(numbers);
        if let Err(error) = connection.send(&cmd).await {
            tracing::debug!(error = error.category(), "failed to publish claim notifications");
        }
    }
}

async fn subscribe(local: Arc<LocalNotifier>, address: RedisAddress, channel: Vec<u8>) {
    let mut backoff = Backoff::default();
    loop {
        match listen(&local, &address, &channel).await {
            Ok(()) => backoff.reset(),
            Err(error) => tracing::debug!(
                error = error.category(),
                "claim notifications disconnected, reconnecting with backoff"
            ),
        }
        backoff.wait().await;
    }
}

/// Listens until the connection ends.
async fn listen(local: &LocalNotifier, address: &RedisAddress, channel: &[u8]) -> RedisResult<()> {
    let (push_sender, mut pushes) = unbounded_channel();
    let mut connection = Connection::open(address, Some(push_sender)).await?;
    connection.subscribe(channel).await?;
    while let Some(push) = pushes.recv().await {
        if push.kind == PushKind::Disconnection {
            break;
        }
        notify_local(local, &push);
    }
    Ok(())
}

fn notify_local(local: &LocalNotifier, push: &PushInfo) {
    if !matches!(push.kind, PushKind::Message | PushKind::SMessage) {
        return;
    }
    if let Some(Value::BulkString(numbers)) = push.data.last() {
        for number in numbers.as_chunks::<8>().0 {
            local.notify(ClaimId::from_number(u64::from_be_bytes(*number)));
        }
    }
}
