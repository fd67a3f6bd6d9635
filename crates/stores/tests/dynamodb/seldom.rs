//! Commits that are read from the log.

use stores::conformance::Fresh;

async fn open() -> Fresh {
    crate::fresh("").await
}

stores::conformance!(open);
