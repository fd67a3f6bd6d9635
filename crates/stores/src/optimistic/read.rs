//! Runs queries on rows that live on a server: a query runs again until the server has confirmed every row it read.

use crate::{
    Result,
    adapter::{Lane, ReadFn},
};

use super::{
    CommitOutcome, OptimisticTx, ReadSet, RemoteBackend, RowCache, Validator, unavailable,
};

/// A query is given up after this many attempts.
const MAX_ATTEMPTS: usize = 100;

pub(crate) async fn read<V: Validator>(backend: &RemoteBackend<V>, mut read: ReadFn) -> Result<()> {
    let mut cache = RowCache::default();
    let mut validated = ReadSet::default();
    for _ in 0..MAX_ATTEMPTS {
        let tx = OptimisticTx::new(backend.kind, &cache, false);
        read(&tx);
        let reads = tx.finish().reads;
        // Rows that were confirmed before are not compared again. So a long list is not the state of one moment, but each part
        // of it is.
        let reads = reads.without(&validated);
        if reads.is_empty() {
            return Ok(());
        }
        match backend.validator.validate(&reads).await? {
            CommitOutcome::Accepted => return Ok(()),
            CommitOutcome::Conflicts(conflicts) => {
                validated.extend(reads);
                for conflict in conflicts {
                    validated.add_conflict(&conflict);
                    cache.apply_conflict(conflict);
                }
            }
            CommitOutcome::Retry => {}
            CommitOutcome::DataLost => {
                // Only the writer can start over. An empty decision makes it notice the loss, too.
                backend.queue.commit(Box::new(|_| true), Lane::Normal).await?;
                return Err(unavailable(backend.kind.name(), "it lost acknowledged writes"));
            }
        }
    }
    Err(unavailable(backend.kind.name(), "too many conflicts with other gateways; retry later"))
}
