//! Which pages may be solved for: deny by default, every declaration with its written basis.

use std::sync::Arc;

use domain::{
    site::{HostRule, Reuse, Site, Sites},
    solve::AmbiguousPolicy,
    time::Day,
};

use crate::config::{
    ConfigError,
    raw::{RawImages, RawSite},
};

/// All declarations, as the operator wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    /// Pages.
    pub sites: Vec<Site>,
    /// The basis on which pictures are read.
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
    /// As the engine wants them.
    pub fn sites(&self) -> Arc<Sites> {
        Arc::new(Sites::new(self.sites.clone(), self.images.clone()))
    }
}

pub(super) fn check(
    raw: Vec<RawSite>,
    images: RawImages,
    simulated: bool,
) -> Result<Declarations, ConfigError> {
    let mut sites: Vec<Site> = raw
        .into_iter()
        .enumerate()
        .map(|(at, raw)| check_site(at, raw))
        .collect::<Result<_, _>>()?;
    for (at, site) in sites.iter().enumerate() {
        if sites[..at].iter().any(|earlier| earlier.rule == site.rule) {
            let place = format!("[[site]] {}", site.rule);
            return Err(ConfigError::at(place, "is declared twice; keep one of them"));
        }
    }
    let mut images = check_basis("[images]", images.basis)?;
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

fn check_site(at: usize, raw: RawSite) -> Result<Site, ConfigError> {
    let host = raw.host.unwrap_or_default();
    let place = match host.as_str() {
        "" => format!("[[site]] number {}", at + 1),
        host => format!("[[site]] {host}"),
    };
    let refused = |what: &str| ConfigError::at(&place, what);
    let missing = "basis is missing; write down on what ground this site may be automated";
    Ok(Site {
        rule: check_rule(&place, &host)?,
        basis: check_basis(&place, raw.basis)?.ok_or_else(|| refused(missing))?,
        expires: raw.expires.map(|day| check_day(&place, &day.0)).transpose()?,
        reuse: raw.reuse.map(|word| check_reuse(&place, &word)).transpose()?,
        ambiguous: match raw.ambiguous.as_deref() {
            None | Some("resubmit-once") => AmbiguousPolicy::ResubmitOnce,
            Some("never") => AmbiguousPolicy::Never,
            Some(_) => {
                return Err(refused("expected ambiguous = \"resubmit-once\" or \"never\""));
            }
        },
        key_ignores_proxy: raw.key_ignores_proxy.unwrap_or(false),
    })
}

/// Reads a host rule; `*` alone gets an answer of its own.
pub(super) fn check_rule(place: &str, host: &str) -> Result<HostRule, ConfigError> {
    if host.starts_with('*') && !host.starts_with("*.") {
        return Err(ConfigError::at(
            place,
            "would declare every site; name the hosts you may automate, such as \"shop.example.com\" or \"*.example.com\"",
        ));
    }
    host.parse().map_err(|error| ConfigError::at(place, error))
}

fn check_basis(place: &str, basis: Option<String>) -> Result<Option<Arc<str>>, ConfigError> {
    let Some(basis) = basis else { return Ok(None) };
    match basis.trim() {
        "" => Err(ConfigError::at(place, "basis is empty; write down the ground in words")),
        basis => Ok(Some(basis.into())),
    }
}

fn check_day(place: &str, text: &str) -> Result<Day, ConfigError> {
    text.parse().map_err(|error| ConfigError::at(place, format!("expires: {error}")))
}

fn check_reuse(place: &str, word: &str) -> Result<Reuse, ConfigError> {
    match word {
        "window" => Ok(Reuse::Window),
        "in-flight" => Ok(Reuse::InFlight),
        "never" => Ok(Reuse::Never),
        _ => Err(ConfigError::at(place, "expected reuse = \"window\", \"in-flight\" or \"never\"")),
    }
}
