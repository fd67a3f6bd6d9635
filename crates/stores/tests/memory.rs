//! The memory store does what every store must.

use stores::conformance::Fresh;

async fn open() -> Fresh {
    Fresh { backend: stores::open("memory:").expect("it is always there"), keep: Box::new(()) }
}

stores::conformance!(open);
