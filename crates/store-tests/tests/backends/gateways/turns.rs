//! A schedule performed at gateways that come and go, or take turns.

use std::collections::BTreeSet;

use stores::Backend;

use crate::{connect, prefix, schedule::Race};

const STEPS: usize = 300;

/// At one connection that is made anew now and then.
pub(crate) async fn one_after_another(mut race: Race, url: String) -> BTreeSet<String> {
    let prefix = prefix();
    let mut other = connect(&url, &prefix).await;
    for _ in 0..STEPS {
        if race.chance().u8(..) < 8 {
            // Unlike the embedded store this one does not take the holders of an earlier connection for dead.
            other = connect(&url, &prefix).await;
        }
        race.step(&other, 0).await;
    }
    race.finish(&other).await
}

/// At three that take turns.
pub(crate) async fn three_in_turn(mut race: Race, url: String) -> BTreeSet<String> {
    let prefix = prefix();
    let mut others: Vec<Backend> = Vec::new();
    for _ in 0..3 {
        others.push(connect(&url, &prefix).await);
    }
    for _ in 0..STEPS {
        let turn = race.chance().usize(0..others.len());
        race.step(&others[turn], 0).await;
    }
    race.finish(&others[0]).await
}
