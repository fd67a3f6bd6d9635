//! Processor time, memory and writes of the measured process. Linux only, because it reads `/proc`.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Resources used since the process started; memory as of now.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Vitals {
    /// Of all threads, user and kernel time.
    pub(crate) cpu: Duration,
    /// Resident memory.
    pub(crate) rss_bytes: u64,
    /// Bytes written to disk.
    pub(crate) written_bytes: u64,
    pub(crate) store: StoreCounts,
}

/// Counters of an embedded store; a memory store has none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoreCounts {
    pub(crate) fsyncs: u64,
    pub(crate) commits: u64,
    pub(crate) decisions: u64,
}

impl Vitals {
    pub(crate) fn of_this_process(store: StoreCounts) -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            cpu: Duration::try_from(cpu).unwrap_or_default(),
            rss_bytes: field("/proc/self/status", "VmRSS:") * 1024,
            written_bytes: field("/proc/self/io", "write_bytes:"),
            store,
        }
    }
}

/// The load average of the last minute.
pub(crate) fn machine_load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

/// The number after a name, or 0 where the system does not provide it.
fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
