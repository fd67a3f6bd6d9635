//! The store: can it be opened, does it keep what it is told, is it near?

use std::path::Path;

use stores::{Finding, OpenError};

use super::Line;
use crate::config::{Config, StoreUrl};

pub(super) async fn examine(config: &Config) -> Vec<Line> {
    let mut lines = vec![];
    for finding in look(&config.store).await {
        lines.push(Line::outside("store", finding));
    }
    if let Some(ledger) = &config.ledger {
        for finding in look(ledger).await {
            lines.push(Line::outside("ledger", finding));
        }
    }
    lines
}

async fn look(store: &StoreUrl) -> Vec<Finding> {
    match store.directory().filter(|dir| !dir.exists()) {
        Some(dir) => vec![to_be_made(store, dir)],
        None => looked_at(store).await,
    }
}

/// Nothing is made here: only whether it could be is looked at.
fn to_be_made(store: &StoreUrl, dir: &Path) -> Finding {
    let above = dir.ancestors().skip(1).map(|dir| match dir {
        here if here.as_os_str().is_empty() => Path::new("."),
        dir => dir,
    });
    let above = above.into_iter().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    match rustix::fs::access(above, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::good(format!("{store} is made at the first start")),
        Err(error) => Finding::bad(
            format!("{store} cannot be made in {}: {error}", above.display()),
            "give this user the right to write there, or another directory with --data DIR",
        ),
    }
}

async fn looked_at(store: &StoreUrl) -> Vec<Finding> {
    let seen = match stores::examine(store.expose()).await {
        Ok(seen) => seen,
        Err(error) => return vec![refused(&error)],
    };
    let mut findings = vec![kept(store)];
    findings.extend(seen);
    findings.extend(in_the_clear(store));
    findings
}

fn kept(store: &StoreUrl) -> Finding {
    if store.is_memory() {
        return Finding::risky(
            "memory: forgets everything with the process, and solves in flight may be paid again",
            "write [store] url = \"embedded:./solvegate-data\", or a Redis or PostgreSQL, unless this is a trial",
        );
    }
    if store.is_shared() {
        return Finding::good(format!("{store} answers"));
    }
    Finding::good(format!("{store} is whole, and on disk before it answers"))
}

/// The sentence's last part says what to do.
fn refused(error: &OpenError) -> Finding {
    let text = error.to_string();
    let (what, remedy) = text.rsplit_once("; ").unwrap_or((&text, "see docs/stores"));
    if let OpenError::InUse { .. } = error {
        let remedy =
            "if that is your gateway all is well; to look into the store itself stop it first";
        return Finding::risky(what, remedy);
    }
    Finding::bad(what, remedy)
}

fn in_the_clear(store: &StoreUrl) -> Option<Finding> {
    let is_here = |host: &str| {
        host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
    };
    if !store.is_in_the_clear() || store.hosts().all(is_here) {
        return None;
    }
    Some(Finding::risky(
        "is on another machine and not encrypted: tokens and the password can be read on the way",
        "use rediss://, or a network nobody else is in",
    ))
}
