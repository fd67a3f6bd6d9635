//! The one task of this process that writes: crowds of decisions, each one transaction.

use std::sync::Arc;

use domain::ports::StoreError;
use tokio::sync::mpsc::Receiver;

use crate::{
    job::Job,
    remote::{self, Asks, Commit, Ended, Memory, Scribe, crowd},
};

use super::{Postgres, server::Server};

/// What the task works with.
struct Pen {
    server: Arc<Server>,
    memory: Memory<Postgres>,
    /// The last turn that was sent.
    turn: i64,
    /// Nobody knows how it ended: the server may still carry it out.
    is_open: bool,
}

/// Starts the task.
pub(super) fn start(server: Arc<Server>) -> Asks<Postgres> {
    let (asks, asked) = Asks::new();
    let pen = Pen { server, memory: Memory::default(), turn: 0, is_open: false };
    tokio::spawn(pen.write_all(asked));
    asks
}

impl Pen {
    async fn write_all(mut self, mut asked: Receiver<Box<dyn Job<Postgres>>>) {
        loop {
            let mut crowd = self.memory.next(&mut asked).await;
            if crowd.is_empty() {
                return;
            }
            let written = crowd::commit(&mut self, &mut crowd).await.map(drop);
            for job in crowd {
                job.answer(written.as_ref().copied().map_err(remote::same::<Postgres>));
            }
        }
    }
}

impl Scribe for Pen {
    type Backend = Postgres;

    fn memory(&mut self) -> &mut Memory<Postgres> {
        &mut self.memory
    }

    /// After a turn whose end is not known the next one stands in line at the head, whatever it writes: only there it is
    /// seen how that one ended, and from then on it cannot end in another way.
    async fn send(&mut self, commit: &Commit) -> Result<Ended, StoreError> {
        if commit.writes.is_empty() && !self.is_open {
            return self.server.look(&commit.assumed).await;
        }
        self.turn += 1;
        let mut in_doubt = false;
        let ended = self.server.commit(commit, self.turn, &mut in_doubt).await;
        self.is_open = in_doubt || (self.is_open && ended.is_err());
        ended
    }
}
