//! The scan of request heads without its connection, for the fuzz target `http_guard`.

use crate::guard::scan::Scan;

/// The scan of one connection.
#[derive(Debug)]
pub struct HeadScan(Scan);

impl Default for HeadScan {
    fn default() -> Self {
        Self(Scan::new(usize::MAX))
    }
}

impl HeadScan {
    /// Scans the next bytes; `true` when the connection is refused because of them.
    pub fn refuses(&mut self, bytes: &[u8]) -> bool {
        self.0.feed(bytes).is_some()
    }
}
