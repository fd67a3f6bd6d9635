//! Checks that the store can be opened and keeps its data.

use std::path::Path;

use stores::{Finding, OpenError};

use super::Check;
use crate::{
    clock::SystemClock,
    config::{Config, StoreUrl},
    keys,
};

pub(super) async fn examine(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    for (about, store) in [("store", Some(&config.store)), ("ledger", config.ledger.as_ref())] {
        let Some(store) = store else { continue };
        checks.extend(examine_store(store).await.into_iter().map(|f| Check::outside(about, f)));
    }
    checks.extend(encryption(config).map(|finding| Check::new("encryption", finding)));
    checks
}

/// Others can read the disks and backups of a server. An old key that stays in the configuration can still be stolen. The mode
/// of a key's file is checked when the configuration is read.
fn encryption(config: &Config) -> Option<Finding> {
    let mut stores = [Some(&config.store), config.ledger.as_ref()].into_iter().flatten();
    let remote = stores.find(|store| store.is_shared());
    match (&config.encryption, remote) {
        (None, Some(store)) => Some(Finding::risky(
            format!(
                "{store} keeps tokens, proxies, cookies and callback addresses unencrypted: whoever reads its disks or \
                 backups has them"
            ),
            "make a key with `openssl rand -hex 32`, set [store] encryption_key, and keep a copy of it",
        )),
        (Some((_, Some(old))), _) => Some(Finding::risky(
            format!(
                "two encryption keys are set; rows of the old one, {}, are sealed again at each start",
                old.id()
            ),
            "once every gateway has started with both, remove the second key from [store] encryption_key",
        )),
        (None, None) | (Some((_, None)), _) => None,
    }
}

async fn examine_store(store: &StoreUrl) -> Vec<Finding> {
    if let Some(dir) = store.directory().filter(|dir| !dir.exists()) {
        return vec![not_created(store, dir)];
    }
    match stores::examine(store.expose(), &SystemClock::start()).await {
        Ok(seen) => {
            let more = unencrypted(store).into_iter().chain(open_directory(store));
            [vec![durability(store)], seen, more.collect()].concat()
        }
        Err(error) => vec![refused(&error)],
    }
}

/// Checks whether `serve` could create the store; nothing is created here.
fn not_created(store: &StoreUrl, dir: &Path) -> Finding {
    let above = dir.ancestors().skip(1).map(|dir| match dir {
        here if here.as_os_str().is_empty() => Path::new("."),
        dir => dir,
    });
    let above = above.into_iter().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    match rustix::fs::access(above, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::good(format!("{store} will be created at the first start")),
        Err(error) => Finding::bad(
            format!("{store} cannot be created in {}: {error}", above.display()),
            "allow this user to write there, or name another directory with --data DIR",
        ),
    }
}

fn durability(store: &StoreUrl) -> Finding {
    if store.is_memory() {
        return Finding::risky(
            "memory: loses everything when the process ends; solves in flight may be paid for again",
            "for more than a trial use [store] url = \"embedded:./solvegate-data\", Redis, PostgreSQL or DynamoDB",
        );
    }
    if store.is_shared() {
        return Finding::good(format!("{store} answers"));
    }
    Finding::good(format!("{store} opens without errors and syncs every write to disk"))
}

/// The last part of the message of an [`OpenError`] is its remedy.
fn refused(error: &OpenError) -> Finding {
    let text = error.to_string();
    let (what, remedy) = text.rsplit_once("; ").unwrap_or((&text, "see docs/stores"));
    if let OpenError::InUse { .. } = error {
        let remedy = "this is normal while your gateway runs; stop it to check the store itself";
        return Finding::risky(what, remedy);
    }
    Finding::bad(what, remedy)
}

fn open_directory(store: &StoreUrl) -> Option<Finding> {
    let dir = store.directory()?;
    let mode = keys::open_to_others(dir)?;
    let dir = dir.display();
    let what = format!("others can look into {dir} (mode {mode:04o}); the files in it are private");
    Some(Finding::risky(what, format!("run: chmod 700 {dir}")))
}

/// PostgreSQL and DynamoDB have a finding of their own.
fn unencrypted(store: &StoreUrl) -> Option<Finding> {
    let is_redis = store.expose().starts_with("redis");
    (is_redis && store.is_exposed()).then(|| {
        Finding::risky(
            "the connection to another machine is not encrypted: others on the network can read tokens and the password",
            "use rediss://",
        )
    })
}
