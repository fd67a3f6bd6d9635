//! Commits that are filed almost at once, so that everything is read from sheets.

use stores::conformance::Fresh;

async fn open() -> Fresh {
    crate::fresh(crate::common::OFTEN).await
}

stores::conformance!(open);
