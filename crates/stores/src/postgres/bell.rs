//! Bells across gateways (`remote::bell`): a ring is told with `NOTIFY`, and what is told rings here.
//!
//! `LISTEN` needs a connection of its own that no pooler shares out. Whether what is told arrives is tried once at the start.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use domain::{id::ClaimId, ports::Doorbell as _};
use futures_util::{StreamExt, stream};
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    time::timeout,
};
use tokio_postgres::{AsyncMessage, Client, Error, types::Type};

use crate::{
    Finding, LocalDoorbell, OpenError,
    remote::{bell::FarDoorbell, pause},
};

use super::{
    address::Address,
    cells::{Cell, Param},
    link::{Failure, Line, Step},
    sql::Ask,
    tls::Secure,
};

/// How far listening has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Progress {
    is_listening: bool,
    /// The last trial that was heard.
    trial: Option<u64>,
}

/// Where to listen, and for what.
struct Post {
    address: Address,
    secure: Secure,
    local: Arc<LocalDoorbell>,
    progress: watch::Sender<Progress>,
}

/// Rings in one message, which has room for 8000 bytes.
const CROWD: usize = 350;
/// A message that takes longer than this to arrive does not.
const TRIAL: Duration = Duration::from_secs(1);
/// What a trial's message begins with.
const TRYING: &str = "try ";

/// Starts to listen and to tell, and sees whether what is told arrives. Both end when the bell is dropped.
pub(super) async fn start(
    address: &Address,
    secure: &Secure,
) -> Result<(FarDoorbell, Finding), OpenError> {
    let local = Arc::new(LocalDoorbell::new());
    let (progress, seen) = watch::channel(Progress::default());
    let post = Post {
        address: address.listening().clone(),
        secure: super::secure(address.listening())?,
        local: Arc::clone(&local),
        progress,
    };
    let channel = address.channel();
    let listener = tokio::spawn(post.listen(channel.clone()));
    let (bell, rings) = FarDoorbell::new(local, listener.abort_handle());
    let line = Line::new(address.clone(), secure.clone(), 1);
    let heard = is_heard(&line, &channel, seen).await;
    tokio::spawn(tell(rings, line, channel));
    Ok((bell, heard))
}

// === telling ===

async fn tell(mut rings: UnboundedReceiver<ClaimId>, line: Line, channel: String) {
    let mut crowd = Vec::new();
    while rings.recv_many(&mut crowd, CROWD).await > 0 {
        let mut numbers = String::new();
        for claim in crowd.drain(..) {
            write!(numbers, "{} ", claim.number()).expect("a string takes everything");
        }
        if let Err(failure) = say(&line, &channel, numbers).await {
            tracing::debug!(error = %failure, "failed to publish claim notifications");
        }
    }
}

async fn say(line: &Line, channel: &str, words: String) -> Result<(), Failure> {
    let text = |text: String| (Param::One(Cell::Text(text)), Type::TEXT);
    let ask = Ask {
        text: "SELECT 1 FROM (SELECT pg_notify($1, $2)) told".to_owned(),
        params: vec![text(channel.to_owned()), text(words)],
    };
    line.run(&[Step::Ask(ask)]).await.map(drop)
}

/// Tells something and listens for it.
async fn is_heard(line: &Line, channel: &str, mut seen: watch::Receiver<Progress>) -> Finding {
    let number = fastrand::u64(..);
    let trial = async {
        let listening = seen.wait_for(|progress| progress.is_listening).await;
        listening.map_err(drop)?;
        say(line, channel, format!("{TRYING}{number}")).await.map_err(drop)?;
        seen.wait_for(|progress| progress.trial == Some(number)).await.map(drop).map_err(drop)
    };
    match timeout(TRIAL, trial).await {
        Ok(Ok(())) => Finding::good("hints from other gateways arrive (LISTEN/NOTIFY)"),
        _ => Finding::risky(
            "hints from other gateways do not arrive (LISTEN is swallowed, by a pooler perhaps): answers of other \
             gateways are found up to a second later",
            "add ?listen=postgres://… with an address of the server itself, not of its pooler",
        ),
    }
}

// === impl Post ===

impl Post {
    async fn listen(self, channel: String) {
        let mut failures = 0;
        loop {
            match self.listen_once(&channel).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    tracing::debug!(
                        error = super::link::said(&error),
                        "claim notifications disconnected, reconnecting with backoff"
                    );
                }
            }
            self.progress.send_modify(|progress| progress.is_listening = false);
            failures += 1;
            tokio::time::sleep(pause(failures)).await;
        }
    }

    /// Listens until the connection ends.
    async fn listen_once(&self, channel: &str) -> Result<(), Error> {
        let (client, mut connection) = self.address.config.connect(self.secure.clone()).await?;
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        let listening = self.begin(&client, channel);
        tokio::pin!(listening);
        let mut has_begun = false;
        loop {
            tokio::select! {
                begun = &mut listening, if !has_begun => {
                    begun?;
                    has_begun = true;
                }
                message = messages.next() => match message {
                    Some(message) => self.heard(&message?),
                    None => return Ok(()),
                },
            }
        }
    }

    async fn begin(&self, client: &Client, channel: &str) -> Result<(), Error> {
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await?;
        self.progress.send_modify(|progress| progress.is_listening = true);
        Ok(())
    }

    fn heard(&self, message: &AsyncMessage) {
        let AsyncMessage::Notification(told) = message else { return };
        if let Some(trial) = told.payload().strip_prefix(TRYING) {
            self.progress.send_modify(|progress| progress.trial = trial.parse().ok());
            return;
        }
        for number in told.payload().split(' ').filter_map(|number| number.parse().ok()) {
            self.local.ring(ClaimId::from_number(number));
        }
    }
}
