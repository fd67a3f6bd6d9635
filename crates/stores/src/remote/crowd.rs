//! Decisions made together: what waits is taken as one crowd, made one after the other on one draft, and compared and
//! written in one call. Where the memory was wrong the crowd is made again on what is true.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
};

use domain::ports::StoreError;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

use crate::{adapter::DecideFn, queued::QueuedDecision};

use super::{Assumed, BackendKind, Correction, Draft, Image, Key, Stamp, Write, same, unavailable};

/// The way to the writing task, which ends when this is dropped and everything asked is answered.
pub(crate) struct Asks {
    backend: &'static str,
    queue: Sender<QueuedDecision>,
}

/// Decisions that are made together.
pub(crate) type Crowd = Vec<QueuedDecision>;

/// What is compared and written together.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) assumed: Assumed,
    pub(crate) writes: BTreeMap<Key, Write>,
    pub(crate) stamp: Stamp,
}

/// How a commit ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Everything was as assumed, and is written.
    Done,
    /// Something was not as assumed; nothing was written.
    Stale(Vec<Correction>),
    /// Nothing was written; it has to be made again.
    Refused,
}

/// Whose turn it is: the server carries out a turn of a gateway once, or never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) number: u64,
    /// Nobody knows how an earlier one ended.
    pub(crate) follows_open: bool,
}

/// Why a turn did not end as it should.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: StoreError,
    /// Nobody knows how it ended: it may still be on its way, and be carried out whenever it arrives.
    pub(crate) is_open: bool,
}

/// What the writing task remembers, and what did not fit into its last call.
pub(crate) struct Memory {
    kind: BackendKind,
    pub(crate) image: Image,
    left: VecDeque<QueuedDecision>,
    /// The last turn that was sent.
    turn: u64,
    /// Nobody knows how a turn ended.
    is_open: bool,
}

/// Who has commits compared and written.
pub(crate) trait Scribe: Send {
    fn memory(&mut self) -> &mut Memory;

    /// Has a commit compared that writes nothing.
    fn look(&mut self, commit: &Commit) -> impl Future<Output = Result<Ended, StoreError>> + Send;

    /// Has a commit compared and written, whatever it writes. Once this has succeeded, no earlier turn is carried out
    /// any more.
    fn write(
        &mut self,
        commit: &Commit,
        turn: Turn,
    ) -> impl Future<Output = Result<Ended, Failed>> + Send;

    /// Whether nothing may be risked on the rows.
    fn is_doubtful(&self) -> bool {
        false
    }

    /// What was written.
    fn wrote(&mut self, _writes: &BTreeMap<Key, Write>) {}

    /// The image had become too large, and is empty.
    fn forgot(&mut self) {}
}

/// Decisions in one call at most: the server does nothing else meanwhile.
const CROWD: usize = 64;
/// Decisions that may wait; beyond it the store is as good as away.
const QUEUE: usize = 20_000;
/// So often a crowd is made again before it is given up.
const ROUNDS: usize = 100;
/// Who was wrong so often goes on with half of the crowd: a smaller one assumes less.
const UNLUCKY: usize = 8;

// === impl Failed ===

#[cfg(feature = "dynamodb")]
impl Failed {
    /// Nothing was written, and nothing will be.
    pub(crate) fn sure(why: StoreError) -> Self {
        Self { why, is_open: false }
    }
}

// === impl Asks ===

impl Asks {
    /// The way, and where everything asked arrives.
    pub(crate) fn new(kind: &BackendKind) -> (Self, Receiver<QueuedDecision>) {
        let (queue, asked) = channel(QUEUE);
        (Self { backend: kind.name, queue }, asked)
    }

    /// Commits a decision.
    pub(crate) async fn commit(&self, decide: DecideFn) -> Result<(), StoreError> {
        let (queued, answer) = QueuedDecision::new(decide);
        self.queue.try_send(queued).map_err(|error| match error {
            TrySendError::Full(_) => unavailable(self.backend, "too many decisions wait for it"),
            TrySendError::Closed(_) => unavailable(self.backend, "its writing task has ended"),
        })?;
        answer
            .await
            .map_err(|_| unavailable(self.backend, "a decision panicked; the log says where"))?
    }
}

// === impl Memory ===

impl Memory {
    pub(crate) fn new(kind: BackendKind) -> Self {
        Self { kind, image: Image::default(), left: VecDeque::new(), turn: 0, is_open: false }
    }

    /// One that also keeps what only readings look at: the backend says of whole stretches that they are complete.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn keeping_all(kind: BackendKind) -> Self {
        Self { image: Image::keeping_all(), ..Self::new(kind) }
    }

    /// Who was left by the last call, or else who asks next; nobody when nobody ever will.
    pub(crate) async fn next(&mut self, asked: &mut Receiver<QueuedDecision>) -> Crowd {
        let mut crowd: Crowd = self.left.drain(..).collect();
        if crowd.is_empty() {
            asked.recv_many(&mut crowd, CROWD).await;
        }
        crowd
    }

    /// Makes as many of the crowd's decisions as fit into a call; the others are left for the next one. Says which of
    /// them must outlive the server.
    fn make(&mut self, crowd: &mut Crowd, doubtful: bool) -> (Commit, Vec<bool>) {
        let mut draft = Draft::new(self.kind, &self.image, doubtful);
        let mut lasting = Vec::with_capacity(crowd.len());
        for queued in crowd.iter_mut() {
            if draft.written() > self.kind.most_bytes {
                break;
            }
            draft.mark();
            // A rule that panics, or fails, must not take the others with it.
            let made = catch_unwind(AssertUnwindSafe(|| queued.run(&mut draft)));
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
        for queued in crowd.drain(keep.min(crowd.len())..).rev() {
            self.left.push_front(queued);
        }
    }

    /// Turns are counted anew, by a server that has forgotten the old ones; what is remembered of it is worth nothing.
    pub(crate) fn forget(&mut self) {
        self.image.clear();
        (self.turn, self.is_open) = (0, false);
    }
}

/// Makes and writes crowds as long as somebody may ask.
pub(crate) async fn write_all<S: Scribe>(mut scribe: S, mut asked: Receiver<QueuedDecision>) {
    let backend = scribe.memory().kind.name;
    loop {
        let mut crowd = scribe.memory().next(&mut asked).await;
        if crowd.is_empty() {
            return;
        }
        let written = commit(&mut scribe, &mut crowd).await.map(drop);
        for queued in crowd {
            queued.answer(written.as_ref().copied().map_err(|why| same(backend, why)));
        }
    }
}

/// Makes the crowd's decisions and has them written; says which of them must outlive the server.
pub(crate) async fn commit<S: Scribe>(
    scribe: &mut S,
    crowd: &mut Crowd,
) -> Result<Vec<bool>, StoreError> {
    if scribe.memory().image.bound() {
        scribe.forgot();
    }
    let mut seen: Option<Assumed> = None;
    for round in 0..ROUNDS {
        let doubtful = scribe.is_doubtful();
        let memory = scribe.memory();
        if round % UNLUCKY == UNLUCKY - 1 {
            memory.leave(crowd, crowd.len().div_ceil(2));
        }
        let (commit, lasting) = memory.make(crowd, doubtful);
        let is_told = |seen| commit.assumed.clone().without(seen).is_empty();
        if commit.writes.is_empty() && seen.as_ref().is_some_and(is_told) {
            return Ok(lasting);
        }
        match send(scribe, &commit).await? {
            Ended::Done => {
                scribe.wrote(&commit.writes);
                scribe.memory().image.wrote(commit.writes, commit.stamp);
                return Ok(lasting);
            }
            Ended::Stale(corrections) => {
                // Only this call's: what is decided was so at one moment.
                let mut told = commit.assumed;
                for correction in corrections {
                    told.learned(&correction);
                    scribe.memory().image.correct(correction);
                }
                seen = Some(told);
            }
            Ended::Refused => {}
        }
    }
    Err(unavailable(
        scribe.memory().kind.name,
        "other gateways change the same things too often; ask again",
    ))
}

/// Has a commit compared, and written where there is something to write. After a turn whose end is not known the next call
/// is a turn too, whatever it writes: only a later one keeps the earlier from being carried out when nobody reckons with
/// it any more.
async fn send<S: Scribe>(scribe: &mut S, commit: &Commit) -> Result<Ended, StoreError> {
    let memory = scribe.memory();
    if commit.writes.is_empty() && !memory.is_open {
        return scribe.look(commit).await;
    }
    memory.turn += 1;
    let turn = Turn { number: memory.turn, follows_open: memory.is_open };
    let written = scribe.write(commit, turn).await;
    let memory = scribe.memory();
    memory.is_open = match &written {
        Ok(_) => false,
        Err(failed) => memory.is_open || failed.is_open,
    };
    written.map_err(|failed| failed.why)
}
