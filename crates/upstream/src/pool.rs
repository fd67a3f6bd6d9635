//! Open lines for questions that cost nothing (polls, reports, balance): kept for a while, used again.
//! Submissions never come here: each opens a line of its own (submit.rs).

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use domain::{
    ports::{Clock, Fault},
    time::Timestamp,
};
use http::Request;
use http_body_util::Full;

use crate::{
    connect::Connector,
    counted::Sent,
    line::{Bounds, Line},
};

/// Shorter than servers commonly wait before they hang up.
const KEEP: Duration = Duration::from_secs(30);

/// How many idle lines are kept at most.
const MOST: usize = 64;

/// Idle lines, the most recently used last.
pub(crate) struct Pool {
    idle: Mutex<Vec<Idle>>,
    clock: Arc<dyn Clock>,
}

struct Idle {
    line: Line,
    since: Timestamp,
}

// === impl Pool ===

impl Pool {
    /// Starts empty.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { idle: Mutex::default(), clock }
    }

    /// Asks once, over an idle line if there is one. The caller bounds the time.
    pub(crate) async fn ask(
        &self,
        connector: &Connector,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Bytes, Fault> {
        let line = match self.take() {
            Some(line) => line,
            None => connector.open(Sent::default()).await?,
        };
        let answered = line.ask(request, bounds).await?;
        if let Some(line) = answered.line {
            self.put(line);
        }
        Ok(answered.body)
    }

    fn take(&self) -> Option<Line> {
        let oldest = self.clock.now().minus(KEEP);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|kept| kept.since >= oldest);
        while let Some(mut kept) = idle.pop() {
            if kept.line.is_open() {
                return Some(kept.line);
            }
        }
        None
    }

    fn put(&self, line: Line) {
        let since = self.clock.now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST {
            idle.push(Idle { line, since });
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
