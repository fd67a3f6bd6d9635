//! The only `spawn`: what runs here is waited for, or ended, when the engine stops.

use std::{future::Future, sync::Mutex};

use tokio::task::JoinSet;

/// A set of tasks that ends together.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    /// Runs a future until it is done, or until [`Tasks::abort`].
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.0.lock().expect("no holder of this lock can panic");
        // Finished tasks are let go here, so that the set does not grow with the number of spawns.
        while set.try_join_next().is_some() {}
        set.spawn(future);
    }

    /// Waits until all tasks are done, those spawned meanwhile included.
    pub async fn finish(&self) {
        loop {
            let mut set =
                std::mem::take(&mut *self.0.lock().expect("no holder of this lock can panic"));
            if set.is_empty() {
                return;
            }
            while set.join_next().await.is_some() {}
        }
    }

    /// Ends all tasks at once.
    pub fn abort(&self) {
        self.0.lock().expect("no holder of this lock can panic").abort_all();
    }
}
