//! Runs every case of the conformance suite on every backend.
//!
//! The default run takes all cases on memory, embedded, Redis, PostgreSQL and DynamoDB. On the variants (a Redis
//! cluster, PostgreSQL behind `PgBouncer`, DynamoDB with compaction after every few commits, the servers with encryption)
//! it takes only the groups whose outcome the transport can change. `SOLVEGATE_LONG=1` runs all cases on the variants too.

use std::sync::LazyLock;

use libtest_mimic::{Arguments, Trial};
use store_tests::{
    CASES, Case, Fresh, connect_sealed_to_corner, fresh_corner, keyring, run,
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
    /// Whether it has an encryption key.
    is_sealed: bool,
}

impl Backend {
    const fn new(name: &'static str, server: fn() -> String) -> Self {
        Self { name, server, is_variant: false, is_sealed: false }
    }

    const fn variant(name: &'static str, server: fn() -> String) -> Self {
        Self { is_variant: true, ..Self::new(name, server) }
    }

    const fn sealed(self) -> Self {
        Self { is_sealed: true, ..self }
    }
}

const BACKENDS: &[Backend] = &[
    Backend::new("memory", || "memory:".to_owned()),
    Backend::new("memory_sealed", || "memory:".to_owned()).sealed(),
    Backend::new("embedded", || "embedded:".to_owned()),
    Backend::new("embedded_sealed", || "embedded:".to_owned()).sealed(),
    Backend::new("redis", || shared_redis().url()),
    Backend::variant("redis_sealed", || shared_redis().url()).sealed(),
    Backend::variant("redis_cluster", || shared_cluster().url()),
    Backend::new("postgres", || shared_postgres().url()),
    Backend::variant("postgres_sealed", || shared_postgres().url()).sealed(),
    Backend::variant("postgres_pooled", pooled_postgres_url),
    Backend::new("dynamodb", || shared_dynamodb().any_table()),
    Backend::variant("dynamodb_sealed", || shared_dynamodb().any_table()).sealed(),
    Backend::variant("dynamodb_compacting", || {
        format!("{}&file_every=3", shared_dynamodb().any_table())
    }),
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
    let keys = backend.is_sealed.then(|| keyring(1, None));
    if server == "embedded:" {
        let directory = tempfile::tempdir().expect("a directory can be created");
        let url = format!("embedded:{}", directory.path().display());
        let opened = stores::connect_sealed(&url, keys).await.expect("an empty directory opens");
        return Fresh { backend: opened, keep: Box::new(directory) };
    }
    if server == "memory:" {
        let opened = stores::connect_sealed(&server, keys).await.expect("memory is always there");
        return Fresh { backend: opened, keep: Box::new(()) };
    }
    let opened = connect_sealed_to_corner(&server, &fresh_corner(), keys).await;
    Fresh { backend: opened.expect("the private server is up"), keep: Box::new(()) }
}
