//! The pages that may be solved for: deny by default, every declaration with its written basis.

use std::sync::Arc;

use domain::{
    site::{Site, Sites},
    solve::AmbiguousPolicy,
};

use crate::config::{
    ConfigError,
    written::{Given, SiteKeys},
};

/// All declarations, as the operator wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    pub sites: Vec<Site>,
    /// The basis on which pictures are solved.
    pub images: Option<Arc<str>>,
}

const SIMULATED: &str = "simulator: names reserved for examples";
const EXAMPLES: [&str; 7] = [
    "example.com",
    "*.example.com",
    "example.net",
    "*.example.net",
    "example.org",
    "*.example.org",
    "localhost",
];

// === impl Declarations ===

impl Declarations {
    /// In the form of the engine.
    pub fn sites(&self) -> Arc<Sites> {
        Arc::new(Sites::new(self.sites.clone(), self.images.clone()))
    }
}

pub(super) fn check(
    keys: Vec<SiteKeys>,
    images: Option<Given<String>>,
    simulated: bool,
) -> Result<Declarations, ConfigError> {
    let each = keys.into_iter().enumerate().map(|(at, keys)| check_site(at, keys));
    let mut sites: Vec<Site> = each.collect::<Result<_, _>>()?;
    for (at, site) in sites.iter().enumerate() {
        if sites[..at].iter().any(|earlier| earlier.rule == site.rule) {
            let place = format!("[[site]] {}", site.rule);
            return Err(ConfigError::at(place, "is declared twice; keep one of them"));
        }
    }
    let mut images = images.map(check_basis).transpose()?;
    if simulated {
        sites.extend(EXAMPLES.iter().map(|host| example(host)));
        images = images.or(Some(SIMULATED.into()));
    }
    Ok(Declarations { sites, images })
}

fn example(host: &str) -> Site {
    Site {
        rule: host.parse().expect("the reserved names are host rules, see the test"),
        basis: SIMULATED.into(),
        expires: None,
        reuse: None,
        ambiguous: AmbiguousPolicy::default(),
        key_ignores_proxy: false,
    }
}

fn check_site(at: usize, keys: SiteKeys) -> Result<Site, ConfigError> {
    let Some(host) = keys.host else {
        let place = format!("[[site]] number {}", at + 1);
        return Err(ConfigError::at(place, "host is missing; write host = \"shop.example.com\""));
    };
    let Some(basis) = keys.basis else {
        let what = "basis is missing; write down on what ground this site may be automated";
        return Err(ConfigError::at(format!("[[site]] {}", host.value), what));
    };
    Ok(Site {
        rule: host.value,
        basis: check_basis(basis)?,
        expires: keys.expires.map(|day| day.value),
        reuse: keys.reuse.map(|reuse| reuse.value),
        ambiguous: keys.ambiguous.value,
        key_ignores_proxy: keys.key_ignores_proxy.value,
    })
}

fn check_basis(basis: Given<String>) -> Result<Arc<str>, ConfigError> {
    basis.check(|basis| match basis.trim() {
        "" => Err("is empty; write down the ground in words"),
        basis => Ok(basis.into()),
    })
}
