//! Checks that sites are declared and not about to expire.

use domain::{ports::Clock as _, site::Site, time::Timestamp};
use stores::Finding;

use super::Check;
use crate::{clock::SystemClock, commands::declarations, config::Config, exit::Exit};

pub(super) fn examine(config: &Config) -> Vec<Check> {
    let now = SystemClock::start().now();
    let sites = &config.declarations.sites;
    let mut findings = vec![declared(sites, config.declarations.images.is_some(), now)];
    findings.extend(sites.iter().filter_map(|site| expiry(site, now)));
    findings.extend(endless(sites));
    let check = |finding| Check { exit: Exit::Usage, ..Check::new("sites", finding) };
    findings.into_iter().map(check).collect()
}

fn declared(sites: &[Site], has_images: bool, now: Timestamp) -> Finding {
    let in_force = sites.iter().filter(|site| !has_expired(site, now)).count();
    if in_force == 0 && !has_images {
        return Finding::bad(
            "no site is declared, so every claim is refused",
            "add a [[site]] with host and basis for each host you may automate",
        );
    }
    let sites = if in_force == 1 { "site" } else { "sites" };
    let images = if has_images { " and images" } else { "" };
    Finding::good(format!("{in_force} {sites}{images} declared"))
}

/// A declaration without an end is never reviewed.
fn endless(sites: &[Site]) -> Option<Finding> {
    let hosts = declarations::endless(sites);
    let remedy = "write `expires`, so that their basis is reviewed";
    (!hosts.is_empty()).then(|| Finding::risky(format!("declared without an end: {hosts}"), remedy))
}

fn has_expired(site: &Site, now: Timestamp) -> bool {
    site.expires.is_some_and(|last| last < now.day())
}

fn expiry(site: &Site, now: Timestamp) -> Option<Finding> {
    let (rule, last) = (&site.rule, site.expires?);
    if has_expired(site, now) {
        let remedy = "renew its basis and `expires`, or remove it";
        return Some(Finding::risky(
            format!("{rule} expired on {last}: its claims are refused"),
            remedy,
        ));
    }
    declarations::ends_soon(site, now).then(|| {
        Finding::risky(format!("{rule} expires on {last}"), "renew its basis and `expires` in time")
    })
}
