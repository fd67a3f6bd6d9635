//! Hints from other gateways: whoever listens has the log read on now and then, quickly after something came, calmly
//! when nothing comes. What others committed rings here as it is read.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::log::Log;

const QUICK: Duration = Duration::from_millis(50);
const CALM: Duration = Duration::from_millis(500);

/// Reads on as long as the log is followed.
pub(super) fn start(log: &Arc<Log>) {
    let log = Arc::downgrade(log);
    tokio::spawn(async move {
        let mut pause = QUICK;
        loop {
            tokio::time::sleep(pause).await;
            let Some(log) = Weak::upgrade(&log) else { return };
            if log.listened_for() == 0 {
                pause = QUICK;
                continue;
            }
            pause = match log.read_on().await {
                Ok(true) => QUICK,
                // Whoever waits looks by itself, and is told what is wrong.
                Ok(false) | Err(_) => pause.mul_f64(1.5).min(CALM),
            };
        }
    });
}
