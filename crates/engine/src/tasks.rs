//! The only place that spawns tasks, so that a drain waits for all of them.

use parking_lot::Mutex;
use tokio::task::JoinSet;

/// A set of tasks that ends together.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    /// Runs a future until it is done, or until [`Tasks::abort`].
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.0.lock();
        // Drops finished tasks, so that the set does not grow with the number of spawns.
        while set.try_join_next().is_some() {}
        set.spawn(future);
    }

    /// Waits until all tasks are done, including those spawned in the meantime.
    pub async fn finish(&self) {
        loop {
            let mut set = std::mem::take(&mut *self.0.lock());
            if set.is_empty() {
                return;
            }
            while set.join_next().await.is_some() {}
        }
    }

    pub fn abort(&self) {
        self.0.lock().abort_all();
    }
}
