//! Claim notifications between gateways (`optimistic/notify.rs`), with `NOTIFY` and `LISTEN`.
//!
//! `LISTEN` needs a connection of its own that no pooler shares. A test notification at the start shows whether notifications
//! arrive.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use domain::{id::ClaimId, ports::Notifier as _};
use futures_util::{StreamExt, stream};
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    time::timeout,
};
use tokio_postgres::{AsyncMessage, Client, Error};

use crate::{
    Finding, LocalNotifier, OpenError, backends::server::backoff::Backoff,
    optimistic::notify::RemoteNotifier,
};

use super::{
    address::PostgresAddress,
    connection::{Pool, QueryError, describe},
    sql::Statement,
    tls::MakeTls,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ListenProgress {
    is_listening: bool,
    /// The last test notification that arrived.
    test: Option<u64>,
}

struct Listener {
    address: PostgresAddress,
    tls: MakeTls,
    local: Arc<LocalNotifier>,
    progress: watch::Sender<ListenProgress>,
}

/// Claims in one message, which has room for 8000 bytes.
const MAX_CLAIMS: usize = 350;
/// A test notification that takes longer than this counts as lost.
const TEST_TIMEOUT: Duration = Duration::from_secs(1);
const TEST_PREFIX: &str = "try ";

/// Starts the subscriber and the publisher, and tests whether notifications arrive. Both end when the notifier is dropped.
pub(super) async fn start(
    address: &PostgresAddress,
) -> Result<(RemoteNotifier, Finding), OpenError> {
    let local = Arc::new(LocalNotifier::new());
    let (progress, watched) = watch::channel(ListenProgress::default());
    let listener = Listener {
        address: address.listen_address().clone(),
        tls: MakeTls::new(&address.listen_address().tls)?,
        local: Arc::clone(&local),
        progress,
    };
    let channel = address.channel();
    let subscriber = tokio::spawn(listener.run(channel.clone()));
    let (notifier, claims) = RemoteNotifier::new(local, subscriber.abort_handle());
    let pool = Pool::new(address, 1)?;
    let finding = test(&pool, &channel, watched).await;
    tokio::spawn(publish(claims, pool, channel));
    Ok((notifier, finding))
}

// === publishing ===

async fn publish(mut claims: UnboundedReceiver<ClaimId>, pool: Pool, channel: String) {
    let mut batch = Vec::new();
    while claims.recv_many(&mut batch, MAX_CLAIMS).await > 0 {
        let mut numbers = String::new();
        for claim in batch.drain(..) {
            write!(numbers, "{} ", claim.number()).expect("writing to a string cannot fail");
        }
        if let Err(error) = notify(&pool, &channel, numbers).await {
            tracing::debug!(%error, "failed to publish claim notifications");
        }
    }
}

async fn notify(pool: &Pool, channel: &str, payload: String) -> Result<(), QueryError> {
    let notify = Statement::new("SELECT 1 FROM (SELECT pg_notify($1, $2)) notified");
    pool.query(notify.text(channel).text(payload)).await.map(drop)
}

/// Publishes a test notification and waits for it.
async fn test(pool: &Pool, channel: &str, mut watched: watch::Receiver<ListenProgress>) -> Finding {
    let number = fastrand::u64(..);
    let received = async {
        let listening = watched.wait_for(|progress| progress.is_listening).await;
        listening.map_err(drop)?;
        notify(pool, channel, format!("{TEST_PREFIX}{number}")).await.map_err(drop)?;
        watched.wait_for(|progress| progress.test == Some(number)).await.map(drop).map_err(drop)
    };
    match timeout(TEST_TIMEOUT, received).await {
        Ok(Ok(())) => Finding::good("notifications from other gateways arrive (LISTEN/NOTIFY)"),
        _ => Finding::risky(
            "notifications from other gateways do not arrive (a pooler may swallow LISTEN): answers of other \
             gateways are found up to a second later",
            "add ?listen=postgres://… with an address of the server itself, not of its pooler",
        ),
    }
}

// === impl Listener ===

impl Listener {
    async fn run(self, channel: String) {
        let mut backoff = Backoff::default();
        loop {
            match self.listen(&channel).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::debug!(
                        error = describe(&error),
                        "claim notifications disconnected, reconnecting with backoff"
                    );
                }
            }
            self.progress.send_modify(|progress| progress.is_listening = false);
            backoff.wait().await;
        }
    }

    /// Listens until the connection ends.
    async fn listen(&self, channel: &str) -> Result<(), Error> {
        let (client, mut connection) = self.address.config.connect(self.tls.clone()).await?;
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        let subscribing = self.subscribe(&client, channel);
        tokio::pin!(subscribing);
        let mut is_subscribed = false;
        loop {
            tokio::select! {
                subscribed = &mut subscribing, if !is_subscribed => {
                    subscribed?;
                    is_subscribed = true;
                }
                message = messages.next() => match message {
                    Some(message) => self.receive(&message?),
                    None => return Ok(()),
                },
            }
        }
    }

    async fn subscribe(&self, client: &Client, channel: &str) -> Result<(), Error> {
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await?;
        self.progress.send_modify(|progress| progress.is_listening = true);
        Ok(())
    }

    fn receive(&self, message: &AsyncMessage) {
        let AsyncMessage::Notification(notification) = message else { return };
        let payload = notification.payload();
        if let Some(test) = payload.strip_prefix(TEST_PREFIX) {
            self.progress.send_modify(|progress| progress.test = test.parse().ok());
            return;
        }
        for number in payload.split(' ').filter_map(|number| number.parse().ok()) {
            self.local.notify(ClaimId::from_number(number));
        }
    }
}
