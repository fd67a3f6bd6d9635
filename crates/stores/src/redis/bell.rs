//! Bells that ring in every gateway: a ring is published, and what is published rings here. Only hints: who listens looks
//! again by itself within a second, so one that is late or lost costs no more.

use std::{fmt, sync::Arc};

use domain::{
    id::ClaimId,
    ports::{Doorbell, Ear},
};
use redis::{PushInfo, PushKind, Value};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
};

use crate::{LocalDoorbell, remote::pause};

use super::{
    address::Address,
    layout::Names,
    link::{Line, Link},
};

/// The bells of all gateways.
pub(super) struct FarDoorbell {
    local: Arc<LocalDoorbell>,
    rung: UnboundedSender<ClaimId>,
    listener: AbortHandle,
}

/// Rings in one message.
const CROWD: usize = 500;

// === impl FarDoorbell ===

impl FarDoorbell {
    /// Starts to listen and to tell. Both end when the bell is dropped.
    pub(super) fn start(address: Address, line: Arc<Line>, names: &Names) -> Self {
        let local = Arc::new(LocalDoorbell::new());
        let (rung, rings) = unbounded_channel();
        let channel = names.bell();
        tokio::spawn(tell(rings, line, channel.clone(), address.is_cluster));
        let listener = tokio::spawn(listen(Arc::clone(&local), address, channel)).abort_handle();
        Self { local, rung, listener }
    }
}

impl Drop for FarDoorbell {
    fn drop(&mut self) {
        // The teller ends when nobody can ring any more.
        self.listener.abort();
    }
}

impl fmt::Debug for FarDoorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarDoorbell").finish_non_exhaustive()
    }
}

impl Doorbell for FarDoorbell {
    fn ring(&self, claim: ClaimId) {
        self.local.ring(claim);
        if self.rung.send(claim).is_err() {
            tracing::debug!("the teller of bells has ended");
        }
    }

    fn listen(&self, claim: ClaimId) -> Ear {
        self.local.listen(claim)
    }
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
            tracing::debug!(error = error.category(), "bells were not rung in other gateways");
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
            Err(error) => tracing::debug!(error = error.category(), "no bells of other gateways"),
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
