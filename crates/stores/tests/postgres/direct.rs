//! One server.

use stores::conformance::{Fresh, servers::shared_postgres};

async fn open() -> Fresh {
    crate::fresh(&shared_postgres().url()).await
}

stores::conformance!(open);
