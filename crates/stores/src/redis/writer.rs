//! The one task of this process that writes. It takes every decision that waits, makes them on what it remembers, and has
//! them compared and written in one call; where its memory was wrong it makes them again.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use domain::ports::StoreError;
use tokio::{sync::mpsc::Receiver, time::timeout};

use crate::{
    queued::QueuedDecision,
    remote::{
        self, Asks, Commit, Crowd, Ended, Failed, Far, Key, Memory, Scribe, Turn, Write, crowd,
        journal::Journal,
    },
};

use super::{
    Redis,
    commit::{Reply, Turn as Asked},
    replicas::Replicas,
    restore::Owed,
    server::{Failure, Server, unavailable},
};

/// What the task works with.
pub(super) struct Pen {
    pub(super) server: Arc<Server>,
    pub(super) memory: Memory,
    pub(super) journal: Journal,
    /// What has to be brought back before anything else is decided.
    pub(super) owed: Option<Owed>,
    replicas: Replicas,
}

/// Whoever owes something waits no longer than this for somebody to ask.
const OWING: Duration = Duration::from_millis(100);

/// Starts the task.
pub(super) fn start(server: Arc<Server>, replicas: Replicas) -> Asks {
    let (asks, asked) = Asks::new(&Redis::KIND);
    // Whoever opened the data after a loss may not have lived to look through its stock.
    let owed = Owed::of_a_newcomer(&server.head());
    let pen = Pen {
        server,
        memory: Memory::new(Redis::KIND),
        journal: Journal::default(),
        owed,
        replicas,
    };
    tokio::spawn(pen.write_all(asked));
    asks
}

// === impl Pen ===

impl Pen {
    async fn write_all(mut self, mut asked: Receiver<QueuedDecision>) {
        loop {
            let pause = if self.owed.is_some() { OWING } else { Duration::MAX };
            match timeout(pause, self.memory.next(&mut asked)).await {
                Ok(crowd) if crowd.is_empty() => return,
                Ok(crowd) => self.write_crowd(crowd).await,
                Err(_) => self.bring_back_unasked().await,
            }
        }
    }

    /// What is owed is brought back also when nobody asks for anything.
    async fn bring_back_unasked(&mut self) {
        if let Err(error) = self.bring_back().await {
            tracing::warn!(%error, "failed to restore records to Redis, retrying");
        }
    }

    async fn write_crowd(&mut self, mut crowd: Crowd) {
        let written = self.write(&mut crowd).await;
        let lasting = written.as_ref().map(Vec::as_slice).unwrap_or_default();
        let is_unsafe = lasting.contains(&true) && !self.replicas.have_it(&self.server).await;
        for (place, queued) in crowd.into_iter().enumerate() {
            queued.answer(match &written {
                Ok(lasting) if is_unsafe && lasting[place] => Err(unavailable(
                    "no replica confirmed the write within half a second; nothing is spent on it",
                )),
                Ok(_) => Ok(()),
                Err(why) => Err(remote::same(super::NAME, why)),
            });
        }
    }

    async fn write(&mut self, crowd: &mut Crowd) -> Result<Vec<bool>, StoreError> {
        self.bring_back().await?;
        self.server.check_settled()?;
        crowd::commit(self, crowd).await
    }

    /// Calls the script. When no answer comes it is called once more: the server carries out a turn at most once. Says
    /// whether one of the calls may still be on its way.
    async fn call(&mut self, commit: &Commit, turn: Turn) -> (Result<Reply, Failure>, bool) {
        let acknowledged = self.server.acknowledged.load(Ordering::Relaxed);
        let again = turn.follows_open || self.server.line.is_cluster();
        let mut asked = Asked { number: turn.number, acknowledged, again };
        let mut reply = self.server.call(commit, asked).await;
        let is_open = reply.as_ref().is_err_and(|failure| failure.is_uncertain);
        if is_open {
            asked.again = true;
            reply = self.server.call(commit, asked).await;
        }
        let is_there = match &reply {
            Ok(Reply::Done { .. } | Reply::Refused) => true,
            Ok(Reply::Stale { .. }) => asked.again,
            Ok(Reply::Lost) | Err(_) => false,
        };
        if is_there {
            self.server.acknowledged.store(asked.number, Ordering::Relaxed);
        }
        (reply, is_open)
    }

    /// What the reply means; a server that lost writes is opened anew.
    async fn ended(&mut self, reply: Reply) -> Result<Ended, StoreError> {
        match reply {
            Reply::Done { .. } => Ok(Ended::Done),
            Reply::Stale { corrections, .. } => Ok(Ended::Stale(corrections)),
            Reply::Refused => Ok(Ended::Refused),
            Reply::Lost => {
                self.start_over().await?;
                Err(unavailable("it lost writes; the gateways bring back what they know"))
            }
        }
    }

    /// What is remembered of a server that lost writes is worth nothing, and turns are counted anew.
    pub(super) fn forget(&mut self) {
        self.memory.forget();
        self.server.acknowledged.store(0, Ordering::Relaxed);
    }
}

impl Scribe for Pen {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    async fn look(&mut self, commit: &Commit) -> Result<Ended, StoreError> {
        let reply = self.server.look(commit).await?;
        self.ended(reply).await
    }

    async fn write(&mut self, commit: &Commit, turn: Turn) -> Result<Ended, Failed> {
        let (reply, is_open) = self.call(commit, turn).await;
        let ended = match reply {
            Ok(reply) => self.ended(reply).await,
            Err(failure) => Err(failure.into()),
        };
        ended.map_err(|why| Failed { why, is_open })
    }

    fn is_doubtful(&self) -> bool {
        self.server.head().is_doubtful()
    }

    fn wrote(&mut self, writes: &BTreeMap<Key, Write>) {
        self.journal.note(writes);
    }
}
