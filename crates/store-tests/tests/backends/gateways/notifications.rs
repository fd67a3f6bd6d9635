//! Helpers for notifications between two gateways.

use std::time::Duration;

use domain::id::ClaimId;
use stores::Backend;
use tokio::time::{Instant, timeout};

use super::PATIENCE;

const RINGS: u64 = 200;

pub(crate) fn claim(number: u64) -> ClaimId {
    ClaimId::from_number(100_000_000_000_000 + number)
}

/// Notifies repeatedly until the other gateway receives it.
pub(crate) async fn until_notified(rung: &Backend, heard: &Backend) {
    let notified = heard.notifier.subscribe(claim(0));
    let ringing = async {
        loop {
            rung.notifier.notify(claim(0));
            tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>())
                .await
                .ok();
        }
    };
    let heard = async {
        tokio::select! {
            () = notified => {}
            () = ringing => {}
        }
    };
    timeout(PATIENCE, heard).await.expect("a repeated notification arrives");
}

/// The median latency of many notifications.
pub(crate) async fn median(rung: &Backend, heard: &Backend) -> Duration {
    let mut took = Vec::new();
    for number in 1..=RINGS {
        let notified = heard.notifier.subscribe(claim(number));
        let start = Instant::now();
        rung.notifier.notify(claim(number));
        timeout(PATIENCE, notified).await.expect("the notification arrives");
        took.push(start.elapsed());
    }
    took.sort_unstable();
    eprintln!("notification latency: median {:?}, longest {:?}", took[100], took[199]);
    took[took.len() / 2]
}
