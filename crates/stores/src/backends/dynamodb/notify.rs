//! Claim notifications from other gateways. DynamoDB pushes nothing, so this task reads the log while a claim is waited for:
//! often after something came, less often when nothing comes. Each commit that is read notifies the waiters of its claims.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::log::Log;

const MIN_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_millis(500);

/// Starts the task, which ends with the log.
pub(super) fn start(log: &Arc<Log>) {
    let log = Arc::downgrade(log);
    tokio::spawn(async move {
        let mut delay = MIN_DELAY;
        loop {
            tokio::time::sleep(delay).await;
            let Some(log) = Weak::upgrade(&log) else { return };
            if log.notifier.listened_for() == 0 {
                delay = MIN_DELAY;
                continue;
            }
            delay = match log.catch_up().await {
                Ok(true) => MIN_DELAY,
                // A waiter also polls by itself, and gets the error there.
                Ok(false) | Err(_) => delay.mul_f64(1.5).min(MAX_DELAY),
            };
        }
    });
}
