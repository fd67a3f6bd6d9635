//! The metadata of the stored data: its incarnation, and the number of commits. A server with fewer commits than it has
//! acknowledged has lost writes; that begins a new incarnation, in which the gateways restore their records.

use std::time::Duration;

use tokio::time::Instant;

use crate::Result;

use super::unavailable;

/// The metadata as a gateway knows it.
#[derive(Clone, Debug)]
pub(crate) struct StoreMeta {
    pub(crate) incarnation: String,
    /// Commits seen.
    pub(crate) count: u64,
    /// When a loss was last found, by the server's clock; zero for never.
    pub(crate) since: u64,
    /// Until then decisions wait for the gateways to restore their records.
    pub(crate) settles_at: Option<Instant>,
    /// Until then no money is spent on what the rows say.
    pub(crate) doubtful_until: Option<Instant>,
    /// This gateway has not restored all of its records yet.
    pub(crate) is_restoring: bool,
    /// When the data was opened, by the server's clock.
    pub(crate) opened_at: u64,
    /// Whether tokens in stock may have been delivered already.
    pub(crate) stock_is_doubtful: bool,
}

/// How long the gateways have to restore their records.
const SETTLING: Duration = Duration::from_secs(5);
/// After this time no gateway restores anything (reliability.md, P16).
const DOUBT: Duration = Duration::from_secs(20);

// === impl StoreMeta ===

impl StoreMeta {
    /// Data that was opened. `since`: when a loss was last found; `opened_at`: now. Both are by the server's clock.
    pub(crate) fn new(incarnation: String, count: u64, (since, opened_at): (u64, u64)) -> Self {
        let mut meta = Self {
            incarnation,
            count,
            since,
            settles_at: None,
            doubtful_until: None,
            is_restoring: false,
            opened_at,
            stock_is_doubtful: false,
        };
        if since > 0 {
            meta.doubt(Duration::from_millis(opened_at.saturating_sub(since)));
        }
        meta
    }

    /// Takes the metadata of a reply. Returns `true` when another gateway has found a loss.
    pub(crate) fn update(&mut self, incarnation: &str, count: u64, since: u64) -> bool {
        if self.incarnation != incarnation {
            // The reply is late and belongs to an earlier incarnation.
            return false;
        }
        self.count = self.count.max(count);
        let is_news = since > self.since;
        if is_news {
            self.since = since;
            self.doubt(Duration::ZERO);
        }
        is_news
    }

    fn doubt(&mut self, ago: Duration) {
        let until = |period: Duration| period.checked_sub(ago).map(|left| Instant::now() + left);
        self.settles_at = until(SETTLING);
        self.doubtful_until = until(DOUBT);
    }

    /// While gateways restore records, a missing row does not mean that the record does not exist.
    pub(crate) fn check_settled(&self, backend: &'static str) -> Result<()> {
        if self.is_settling() {
            return Err(unavailable(
                backend,
                "it lost writes a moment ago; the gateways are restoring their records (5 s)",
            ));
        }
        Ok(())
    }

    fn is_settling(&self) -> bool {
        self.is_restoring || self.settles_at.is_some_and(|at| Instant::now() < at)
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful_until.is_some_and(|at| Instant::now() < at)
    }
}
