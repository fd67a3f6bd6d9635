//! A schedule performed at one gateway that restarts, or at several in turn.

use std::collections::BTreeSet;

use stores::Backend;

use crate::{connect, prefix, schedule::Comparison};

const STEPS: usize = 300;

/// At one connection that is reopened now and then.
pub(crate) async fn one_after_another(mut comparison: Comparison, url: String) -> BTreeSet<String> {
    let prefix = prefix();
    let mut other = connect(&url, &prefix).await;
    for _ in 0..STEPS {
        if comparison.chance().u8(..) < 8 {
            // Unlike the embedded store, a shared store does not take the holders of an earlier connection for dead.
            other = connect(&url, &prefix).await;
        }
        comparison.step(&other, 0).await;
    }
    comparison.finish(&other).await
}

/// At three gateways in turn.
pub(crate) async fn three_in_turn(mut comparison: Comparison, url: String) -> BTreeSet<String> {
    let prefix = prefix();
    let mut others: Vec<Backend> = Vec::new();
    for _ in 0..3 {
        others.push(connect(&url, &prefix).await);
    }
    for _ in 0..STEPS {
        let turn = comparison.chance().usize(0..others.len());
        comparison.step(&others[turn], 0).await;
    }
    comparison.finish(&others[0]).await
}
