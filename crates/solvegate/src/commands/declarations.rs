//! Declarations that should be reviewed: without an end, or with an end that is near. `doctor` and the start banner name them.

use std::time::Duration;

use domain::{site::Site, time::Timestamp};

use crate::config::is_example;

/// Renewing a basis in writing takes some days.
const NOTICE: Duration = Duration::from_secs(14 * 86_400);

/// The hosts that are declared without an end, except those that the simulator declares.
pub(super) fn endless(sites: &[Site]) -> String {
    let endless = sites.iter().filter(|site| site.expires.is_none() && !is_example(site));
    endless.map(|site| site.rule.to_string()).collect::<Vec<_>>().join(", ")
}

/// Whether the declaration is in force and ends within the next days.
pub(super) fn ends_soon(site: &Site, now: Timestamp) -> bool {
    site.expires.is_some_and(|last| last >= now.day() && last.end() < now.plus(NOTICE))
}
