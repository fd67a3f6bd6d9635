//! Runs every case of the conformance suite on every backend.
//!
//! The default run takes all cases on memory, embedded, Redis, PostgreSQL and DynamoDB. On the variants (a Redis
//! cluster, PostgreSQL behind `PgBouncer`, DynamoDB with compaction after every few commits) it takes only the groups
//! whose outcome the transport can change. `SOLVEGATE_LONG=1` runs all cases on the variants too.

use std::sync::LazyLock;

use libtest_mimic::{Arguments, Trial};
use store_tests::{
    CASES, Case, Fresh, connect_to_corner, fresh_corner, run,
    servers::{
        pooled_postgres_url, shared_cluster, shared_dynamodb, shared_postgres, shared_redis,
    },
};
use tokio::runtime::Runtime;

/// A backend, or a variant of one.
struct Backend {
    name: &'static str,
    /// The URL of its shared server, which the first case that needs it starts.
    server: fn() -> String,
    is_variant: bool,
}

const BACKENDS: &[Backend] = &[
    Backend { name: "memory", server: || "memory:".to_owned(), is_variant: false },
    Backend { name: "embedded", server: || "embedded:".to_owned(), is_variant: false },
    Backend { name: "redis", server: || shared_redis().url(), is_variant: false },
    Backend { name: "redis_cluster", server: || shared_cluster().url(), is_variant: true },
    Backend { name: "postgres", server: || shared_postgres().url(), is_variant: false },
    Backend { name: "postgres_pooled", server: pooled_postgres_url, is_variant: true },
    Backend { name: "dynamodb", server: || shared_dynamodb().any_table(), is_variant: false },
    Backend {
        name: "dynamodb_compacting",
        server: || format!("{}&file_every=3", shared_dynamodb().any_table()),
        is_variant: true,
    },
];

/// The groups whose outcome the transport can change: concurrent callers, leases, repeated facts, keys, large
/// transactions.
const TRANSPORT: [&str; 5] = ["concurrency", "lease", "settle", "keys", "archive"];

/// All cases share one runtime; one runtime per case would start thousands of threads.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new().expect("threads can be started"));

fn main() {
    let long = std::env::var_os("SOLVEGATE_LONG").is_some();
    let trials = BACKENDS.iter().flat_map(|backend| {
        let is_run =
            move |case: &&Case| long || !backend.is_variant || TRANSPORT.contains(&case.group);
        CASES.iter().filter(is_run).map(|case| trial(backend, *case))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn trial(backend: &'static Backend, case: Case) -> Trial {
    Trial::test(format!("{}::{case:?}", backend.name), move || {
        RUNTIME.block_on(async { run(case, open(backend).await).await });
        Ok(())
    })
}

/// Opens an empty store.
async fn open(backend: &Backend) -> Fresh {
    let server = (backend.server)();
    if server == "embedded:" {
        let directory = tempfile::tempdir().expect("a directory can be created");
        let url = format!("embedded:{}", directory.path().display());
        let opened = stores::open(&url).expect("an empty directory opens");
        return Fresh { backend: opened, keep: Box::new(directory) };
    }
    if server == "memory:" {
        let opened = stores::open(&server).expect("memory is always there");
        return Fresh { backend: opened, keep: Box::new(()) };
    }
    Fresh { backend: connect_to_corner(&server, &fresh_corner()).await, keep: Box::new(()) }
}
