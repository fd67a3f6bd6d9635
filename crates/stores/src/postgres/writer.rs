//! The one task of this process that writes: crowds of decisions, each one transaction.

use std::sync::Arc;

use domain::ports::StoreError;

use crate::remote::{Asks, Commit, Ended, Failed, Far, Memory, Scribe, Turn, crowd};

use super::{Postgres, server::Server};

/// What the task works with.
struct Pen {
    server: Arc<Server>,
    memory: Memory,
}

/// Starts the task.
pub(super) fn start(server: Arc<Server>) -> Asks {
    let (asks, asked) = Asks::new(&Postgres::KIND);
    let pen = Pen { server, memory: Memory::new(Postgres::KIND) };
    tokio::spawn(crowd::write_all(pen, asked));
    asks
}

impl Scribe for Pen {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    async fn look(&mut self, commit: &Commit) -> Result<Ended, StoreError> {
        self.server.look(&commit.assumed).await
    }

    /// A turn stands in line at the head: only there it is seen how an earlier one ended, and from then on that cannot end
    /// in another way.
    async fn write(&mut self, commit: &Commit, turn: Turn) -> Result<Ended, Failed> {
        let mut is_open = false;
        let ended = self.server.commit(commit, turn.number.cast_signed(), &mut is_open).await;
        ended.map_err(|why| Failed { why, is_open })
    }
}
