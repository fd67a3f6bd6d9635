//! A cluster of three.

use stores::conformance::{Fresh, servers::shared_cluster};

async fn open() -> Fresh {
    crate::fresh(&shared_cluster().url()).await
}

stores::conformance!(open);
