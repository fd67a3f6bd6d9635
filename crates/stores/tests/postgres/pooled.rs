//! Through a pooler in transaction mode, which gives each transaction another connection.

use stores::conformance::Fresh;

async fn open() -> Fresh {
    crate::fresh(&crate::pooled_url()).await
}

stores::conformance!(open);
