//! The one task of this process that writes. It takes every decision that waits, makes them on what it remembers, and has
//! them compared and written in one call; where its memory was wrong it makes them again.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use domain::ports::StoreError;
use tokio::{
    sync::mpsc::{Receiver, Sender, channel, error::TrySendError},
    time::timeout,
};

use crate::{
    job::{self, Job},
    remote::{Assumed, Draft, Image, journal::Journal},
};

use super::{
    Redis,
    commit::{Commit, Reply, Turn},
    replicas::Replicas,
    restore::Owed,
    server::{Failure, Server, same, unavailable},
};

/// The way to the writing task, which ends when this is dropped and everything asked is answered.
pub(super) struct Writer {
    queue: Sender<Box<dyn Job<Redis>>>,
}

/// What the task works with.
pub(super) struct Pen {
    pub(super) server: Arc<Server>,
    pub(super) image: Image,
    pub(super) journal: Journal,
    /// What has to be brought back before anything else is decided.
    pub(super) owed: Option<Owed>,
    replicas: Replicas,
    /// The last turn that was sent.
    turn: u64,
    /// What did not fit into the last call.
    left: VecDeque<Box<dyn Job<Redis>>>,
}

pub(super) type Crowd = Vec<Box<dyn Job<Redis>>>;

/// Decisions in one call at most: the server does nothing else meanwhile.
const CROWD: usize = 64;
/// Bytes in one call, but for its last decision: challenges can be large.
const MOST_BYTES: usize = 2 << 20;
/// Decisions that may wait; beyond it the store is as good as away.
const QUEUE: usize = 20_000;
/// Whoever owes something waits no longer than this for somebody to ask.
const OWING: Duration = Duration::from_millis(100);
/// So often a crowd is made again before it is given up.
const ROUNDS: usize = 100;
/// Who was wrong so often goes on with half of the crowd: a smaller one assumes less.
const UNLUCKY: usize = 8;

// === impl Writer ===

impl Writer {
    pub(super) fn start(server: Arc<Server>, replicas: Replicas) -> Self {
        let (queue, asked) = channel(QUEUE);
        // Whoever opened the data after a loss may not have lived to look through its stock.
        let owed = Owed::of_a_newcomer(&server.head());
        let pen = Pen {
            server,
            image: Image::default(),
            journal: Journal::default(),
            owed,
            replicas,
            turn: 0,
            left: VecDeque::new(),
        };
        tokio::spawn(pen.write_all(asked));
        Self { queue }
    }

    /// Makes a decision.
    pub(super) async fn ask<T, F>(&self, decide: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut Draft<'_, Redis>) -> Result<T, StoreError> + Send + 'static,
    {
        let (job, answer) = job::new::<Redis, T, F>(decide);
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => unavailable("too many decisions wait for it"),
            TrySendError::Closed(_) => unavailable("its writing task has ended"),
        })?;
        answer.await.map_err(|_| unavailable("a decision panicked; the log says where"))?
    }
}

// === impl Pen ===

impl Pen {
    async fn write_all(mut self, mut asked: Receiver<Box<dyn Job<Redis>>>) {
        let mut crowd = Vec::new();
        loop {
            crowd.extend(self.left.drain(..));
            if crowd.is_empty() {
                let asking = asked.recv_many(&mut crowd, CROWD);
                let pause = if self.owed.is_some() { OWING } else { Duration::MAX };
                match timeout(pause, asking).await {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(_) => self.bring_back_unasked().await,
                }
            }
            self.write_crowd(std::mem::take(&mut crowd)).await;
        }
    }

    /// What is owed is brought back also when nobody asks for anything.
    async fn bring_back_unasked(&mut self) {
        if let Err(error) = self.bring_back().await {
            tracing::warn!(%error, "what is known here is not back in Redis yet; trying again");
        }
    }

    async fn write_crowd(&mut self, mut crowd: Crowd) {
        if crowd.is_empty() {
            return;
        }
        let written = self.write(&mut crowd).await;
        let lasting = written.as_ref().map(Vec::as_slice).unwrap_or_default();
        let is_unsafe = lasting.contains(&true) && !self.replicas.have_it(&self.server).await;
        for (place, job) in crowd.into_iter().enumerate() {
            job.answer(match &written {
                Ok(lasting) if is_unsafe && lasting[place] => Err(unavailable(
                    "no replica confirmed the write within half a second; nothing is spent on it",
                )),
                Ok(_) => Ok(()),
                Err(why) => Err(same(why)),
            });
        }
    }

    async fn write(&mut self, crowd: &mut Crowd) -> Result<Vec<bool>, StoreError> {
        self.bring_back().await?;
        self.server.check_settled()?;
        self.commit(crowd).await
    }

    /// Makes the crowd's decisions and has them written; says which of them must outlive the server.
    pub(super) async fn commit(&mut self, crowd: &mut Crowd) -> Result<Vec<bool>, StoreError> {
        self.image.bound();
        let mut seen: Option<Assumed> = None;
        for round in 0..ROUNDS {
            if round % UNLUCKY == UNLUCKY - 1 {
                self.leave(crowd, crowd.len().div_ceil(2));
            }
            let (commit, lasting) = self.make(crowd);
            let is_told = |seen| commit.assumed.clone().without(seen).is_empty();
            if commit.writes.is_empty() && seen.as_ref().is_some_and(is_told) {
                return Ok(lasting);
            }
            match self.send(&commit).await? {
                Reply::Done { .. } => {
                    self.journal.note(&commit.writes);
                    self.image.wrote(commit.writes, commit.stamp);
                    return Ok(lasting);
                }
                Reply::Stale { corrections, .. } => {
                    // Only this call's: what is decided was so at one moment.
                    let mut told = commit.assumed;
                    for correction in corrections {
                        told.learned(&correction);
                        self.image.correct(correction);
                    }
                    seen = Some(told);
                }
                Reply::Refused => {}
                Reply::Lost => {
                    self.start_over().await?;
                    return Err(unavailable(
                        "it lost writes; the gateways bring back what they know",
                    ));
                }
            }
        }
        Err(unavailable("other gateways change the same things too often; ask again"))
    }

    /// Makes as many of the crowd's decisions as fit into a call; the others are left for the next one.
    fn make(&mut self, crowd: &mut Crowd) -> (Commit, Vec<bool>) {
        let mut draft = Draft::new(&self.image, self.server.head().is_doubtful());
        let mut lasting = Vec::with_capacity(crowd.len());
        for job in crowd.iter_mut() {
            if draft.written() > MOST_BYTES {
                break;
            }
            draft.mark();
            // A rule that panics, or fails, must not take the others with it.
            let made = catch_unwind(AssertUnwindSafe(|| job.make(&mut draft)));
            if !made.unwrap_or(false) {
                draft.take_back();
            }
            lasting.push(draft.take_lasting());
        }
        let (assumed, writes) = draft.finish();
        self.leave(crowd, lasting.len());
        (Commit { assumed, writes, stamp: fastrand::u64(..).to_be_bytes() }, lasting)
    }

    /// Leaves all but the first few for the next call.
    fn leave(&mut self, crowd: &mut Crowd, keep: usize) {
        for job in crowd.drain(keep.min(crowd.len())..).rev() {
            self.left.push_front(job);
        }
    }

    /// Sends a commit. When no answer comes it is sent once more: the server carries out a turn at most once.
    async fn send(&mut self, commit: &Commit) -> Result<Reply, Failure> {
        if commit.writes.is_empty() {
            return self.server.look(commit).await;
        }
        let acknowledged = self.server.acknowledged.load(Ordering::Relaxed);
        self.turn += 1;
        let again = self.server.line.is_cluster();
        let mut turn = Turn { number: self.turn, acknowledged, again };
        let mut reply = self.server.call(commit, turn).await;
        if reply.as_ref().is_err_and(|failure| failure.is_uncertain) {
            turn.again = true;
            reply = self.server.call(commit, turn).await;
        }
        let is_there = match &reply {
            Ok(Reply::Done { .. } | Reply::Refused) => true,
            Ok(Reply::Stale { .. }) => turn.again,
            Ok(Reply::Lost) | Err(_) => false,
        };
        if is_there {
            self.server.acknowledged.store(turn.number, Ordering::Relaxed);
        }
        reply
    }

    /// What is remembered of a server that lost writes is worth nothing, and turns are counted anew.
    pub(super) fn forget(&mut self) {
        self.image.clear();
        self.turn = 0;
        self.server.acknowledged.store(0, Ordering::Relaxed);
    }
}
