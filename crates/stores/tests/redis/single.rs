//! One server.

use stores::conformance::{Fresh, servers::shared_redis};

async fn open() -> Fresh {
    crate::fresh(&shared_redis().url()).await
}

stores::conformance!(open);
