//! The declarations: is anything declared, and does it still hold?

use std::time::Duration;

use domain::{ports::Clock as _, site::Site, time::Timestamp};
use stores::Finding;

use super::Line;
use crate::{clock::SystemClock, config::Config, exit::Exit};

/// Whoever renews a basis in writing needs some days.
const SOON: Duration = Duration::from_secs(14 * 86_400);

pub(super) fn examine(config: &Config) -> Vec<Line> {
    let now = SystemClock::start().now();
    let sites = &config.declarations.sites;
    let mut findings = vec![declared(sites, config.declarations.images.is_some(), now)];
    findings.extend(sites.iter().filter_map(|site| ending(site, now)));
    let line = |finding| Line { exit: Exit::Usage, ..Line::new("sites", finding) };
    findings.into_iter().map(line).collect()
}

fn declared(sites: &[Site], has_images: bool, now: Timestamp) -> Finding {
    let in_force = sites.iter().filter(|site| !has_ended(site, now)).count();
    if in_force == 0 && !has_images {
        return Finding::bad(
            "no declaration is in force, so everything is refused",
            "add a [[site]] with host and basis for each host you may automate",
        );
    }
    let images = if has_images { "and images " } else { "" };
    Finding::good(format!("{in_force} {images}declared"))
}

fn has_ended(site: &Site, now: Timestamp) -> bool {
    site.expires.is_some_and(|last| last < now.day())
}

fn ending(site: &Site, now: Timestamp) -> Option<Finding> {
    let (rule, last) = (&site.rule, site.expires?);
    if has_ended(site, now) {
        let remedy = "renew its basis and `expires`, or remove it";
        return Some(Finding::risky(format!("{rule} ended on {last}: it is refused"), remedy));
    }
    (last.end() < now.plus(SOON)).then(|| {
        Finding::risky(format!("{rule} ends on {last}"), "renew its basis and `expires` in time")
    })
}
