//! The embedded store does what every store must.

use stores::conformance::Fresh;

async fn open() -> Fresh {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let url = format!("embedded:{}", dir.path().display());
    Fresh { backend: stores::open(&url).expect("an empty directory opens"), keep: Box::new(dir) }
}

stores::conformance!(open);
