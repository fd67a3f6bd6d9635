//! Processor time, memory and writes of the measured process. Linux only, because it reads `/proc`.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What a process has used since it began; memory as it is now.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Vitals {
    /// Processor time of all its threads, in the kernel too.
    pub(crate) cpu: Duration,
    /// Memory that is really there.
    pub(crate) rss_bytes: u64,
    /// What it made the kernel write to a disk.
    pub(crate) written_bytes: u64,
    /// The store's own counts.
    pub(crate) store: StoreCounts,
}

/// What an embedded store counts; a memory store counts nothing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoreCounts {
    pub(crate) fsyncs: u64,
    pub(crate) commits: u64,
    pub(crate) decisions: u64,
}

impl Vitals {
    /// This process, now.
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

/// The machine's load over the last minute.
pub(crate) fn machine_load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

/// The number after a name; 0 where the system does not tell.
fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
