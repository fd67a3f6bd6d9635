//! Listening in one gateway for what is rung in another.

use std::time::Duration;

use domain::id::ClaimId;
use stores::Backend;
use tokio::time::{Instant, timeout};

use super::PATIENCE;

const RINGS: u64 = 200;

pub(crate) fn claim(number: u64) -> ClaimId {
    ClaimId::from_number(100_000_000_000_000 + number)
}

/// Rings at one until the other hears it.
pub(crate) async fn until_heard(rung: &Backend, heard: &Backend) {
    let ear = heard.doorbell.listen(claim(0));
    let ringing = async {
        loop {
            rung.doorbell.ring(claim(0));
            tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>())
                .await
                .ok();
        }
    };
    let heard = async {
        tokio::select! {
            () = ear => {}
            () = ringing => {}
        }
    };
    timeout(PATIENCE, heard).await.expect("a bell rung again and again is heard");
}

/// How long it takes from a ring to the ear, in the middle of many.
pub(crate) async fn median(rung: &Backend, heard: &Backend) -> Duration {
    let mut took = Vec::new();
    for number in 1..=RINGS {
        let ear = heard.doorbell.listen(claim(number));
        let start = Instant::now();
        rung.doorbell.ring(claim(number));
        timeout(PATIENCE, ear).await.expect("the bell is heard");
        took.push(start.elapsed());
    }
    took.sort_unstable();
    eprintln!("from ring to ear: median {:?}, longest {:?}", took[100], took[199]);
    took[took.len() / 2]
}
