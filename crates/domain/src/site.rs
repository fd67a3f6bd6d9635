//! Page URLs, and the rules that say which of them a declared site covers. `declarations.rs` checks them.
//!
//! Our parser could read a URL as a declared site while the provider's reads another host. Everything on which parsers are
//! known to disagree is therefore refused before the URL library sees it, and only the canonical form is compared and
//! forwarded.

mod contents;
mod targets;

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::{challenge::Challenge, solve::AmbiguousPolicy, time::Day};

pub use contents::{ContentRefusal, Opened, targets_of};

/// A page URL in its canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageUrl {
    canonical: Arc<str>,
    host: Arc<str>,
    port: u16,
}

/// Why a page URL is refused. The text never repeats the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadPageUrl {
    #[error("the page URL is longer than 2048 bytes")]
    TooLong,
    #[error("the page URL contains a space, a control character or a backslash")]
    Character,
    #[error("the page URL does not begin with http:// or https://, written in full")]
    Scheme,
    #[error("the page URL's host part is empty or contains @ or %")]
    Authority,
    /// The punycode spelling shows the reader what the host really is.
    #[error("the page URL's host is not ASCII; written in punycode it is {0}")]
    NotAscii(String),
    #[error("the page URL's host is an IP address; declare and name the site by its host name")]
    Address,
    #[error("the page URL's host is not a host name of two or more labels")]
    Label,
    #[error("the page URL's port cannot be used")]
    Port,
    #[error("the page URL cannot be read")]
    Unreadable,
}

/// A rule for hosts: one host, or all hosts below one (`*.example.com`). It covers the default port of the page's scheme, unless
/// it names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    below: bool,
    host: String,
    port: Option<u16>,
}

/// The rule is not a host, `*.host` or either with `:port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} is not a site rule: {why}")]
pub struct BadRule {
    rule: String,
    why: &'static str,
}

/// How claims without an idempotency key share a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// While the first claim is in flight, and for the reuse window after.
    Window,
    /// Only while the first claim is in flight.
    InFlight,
    /// Never; every claim opens its own solve.
    Never,
}

/// What a named key does with a claim that failed or lapsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterFailure {
    /// Replay the failure for the failure window, then open the claim again.
    #[default]
    Reopen,
    /// Replay the failure as long as the key is kept.
    Replay,
}

/// A site the operator declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The hosts it covers.
    pub rule: HostRule,
    /// Why the operator may automate the site. Kept with every claim.
    pub basis: Arc<str>,
    /// The person or team that answers for it.
    pub owner: Option<Arc<str>>,
    /// The last day of the declaration.
    pub expires: Option<Day>,
    /// Overrides the API's default for claims without a key.
    pub reuse: Option<Reuse>,
    /// What a named key does after a failure.
    pub after_failure: AfterFailure,
    /// What to do after a lost reply.
    pub ambiguous: AmbiguousPolicy,
    /// Whether challenges that differ only in their proxy are the same.
    pub key_ignores_proxy: bool,
    /// Methods, parameters and site keys.
    pub opened: Opened,
}

// === impl PageUrl ===

impl PageUrl {
    /// Parses a page URL strictly.
    pub fn parse(raw: &str) -> Result<Self, BadPageUrl> {
        if raw.len() > 2048 {
            return Err(BadPageUrl::TooLong);
        }
        if raw.bytes().any(|b| b <= 0x20 || b == 0x7f || b == b'\\') {
            return Err(BadPageUrl::Character);
        }
        check_authority(authority(raw)?, raw)?;
        let url = Url::parse(raw).map_err(|_| BadPageUrl::Unreadable)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadPageUrl::Authority);
        }
        let host = checked_host(&url)?;
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(BadPageUrl::Port)?;
        Ok(Self { canonical: canonical(url, &host)?.into(), host: host.into(), port })
    }

    /// The canonical form, as it is stored and forwarded.
    pub fn as_str(&self) -> &str {
        &self.canonical
    }

    /// Whether the port is the one of its scheme.
    fn has_default_port(&self) -> bool {
        self.port == if self.canonical.starts_with("https:") { 443 } else { 80 }
    }

    /// The host, lower case, without a final dot.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// The part between the scheme and the path.
fn authority(raw: &str) -> Result<&str, BadPageUrl> {
    let starts = |scheme: &&str| {
        raw.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = ["https://", "http://"].into_iter().find(starts).ok_or(BadPageUrl::Scheme)?;
    let rest = &raw[scheme.len()..];
    Ok(&rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())])
}

fn check_authority(authority: &str, raw: &str) -> Result<(), BadPageUrl> {
    if authority.is_empty() || authority.contains(['@', '%']) {
        return Err(BadPageUrl::Authority);
    }
    if authority.is_ascii() {
        return Ok(());
    }
    let punycode = Url::parse(raw).ok().and_then(|url| url.host_str().map(str::to_owned));
    Err(BadPageUrl::NotAscii(punycode.unwrap_or_else(|| "not possible".into())))
}

fn checked_host(url: &Url) -> Result<String, BadPageUrl> {
    let host = match url.host() {
        Some(Host::Domain(domain)) => domain,
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => return Err(BadPageUrl::Address),
        None => return Err(BadPageUrl::Unreadable),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if is_host_name(host) { Ok(host.to_owned()) } else { Err(BadPageUrl::Label) }
}

/// At least two labels, except for `localhost`.
fn is_host_name(host: &str) -> bool {
    let good = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let labels = host.split('.').count();
    host.len() <= 253
        && host.split('.').all(good)
        && ((2..=127).contains(&labels) || host == "localhost")
}

fn canonical(mut url: Url, host: &str) -> Result<String, BadPageUrl> {
    url.set_fragment(None);
    // Setting the host parses it again, so only do so where the final dot was removed.
    if url.host_str() != Some(host) {
        url.set_host(Some(host)).map_err(|_| BadPageUrl::Unreadable)?;
    }
    Ok(url.into())
}

impl fmt::Display for PageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)
    }
}

impl FromStr for PageUrl {
    type Err = BadPageUrl;

    fn from_str(text: &str) -> Result<Self, BadPageUrl> {
        Self::parse(text)
    }
}

serialize_as_text!(PageUrl);

// === impl HostRule ===

impl HostRule {
    /// Whether the rule covers the page. `*.base` covers hosts below `base`, but not `base` itself.
    pub fn covers(&self, page: &PageUrl) -> bool {
        let port_fits = match self.port {
            Some(port) => page.port == port,
            None => page.has_default_port(),
        };
        port_fits && self.fits_host(page)
    }

    /// The same on every port, unless the rule names one.
    pub fn covers_host(&self, page: &PageUrl) -> bool {
        self.port.is_none_or(|port| page.port == port) && self.fits_host(page)
    }

    /// Whether there is a host that both rules cover, whatever the port.
    pub fn shares_hosts_with(&self, other: &Self) -> bool {
        let same_base = self.host == other.host && self.below == other.below;
        same_base
            || (self.below && is_below(&other.host, &self.host))
            || (other.below && is_below(&self.host, &other.host))
    }

    fn fits_host(&self, page: &PageUrl) -> bool {
        if self.below { is_below(&page.host, &self.host) } else { *page.host == self.host }
    }
}

fn is_below(host: &str, base: &str) -> bool {
    host.strip_suffix(base).is_some_and(|above| above.len() > 1 && above.ends_with('.'))
}

impl FromStr for HostRule {
    type Err = BadRule;

    fn from_str(rule: &str) -> Result<Self, BadRule> {
        let refused = |why| BadRule { rule: rule.to_owned(), why };
        let (name, port) = match rule.rsplit_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (rule, None),
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port != 0 => Some(port),
            Some(_) => return Err(refused("the port is not a number from 1 to 65535")),
        };
        let (below, host) = match name.strip_prefix("*.") {
            Some(base) => (true, base),
            None => (false, name),
        };
        if !is_host_name(host) || host.parse::<std::net::IpAddr>().is_ok() {
            return Err(refused(
                "write a lower-case host name (in punycode if need be), without scheme and path",
            ));
        }
        if below && psl::suffix_str(host) == Some(host) {
            return Err(refused("it covers a whole public suffix"));
        }
        Ok(Self { below, host: host.to_owned(), port })
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.below { "*." } else { "" };
        write!(f, "{below}{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

// === impl Site ===

impl Site {
    /// A declaration with nothing but a rule and its basis.
    pub fn new(rule: HostRule, basis: impl Into<Arc<str>>) -> Self {
        Self {
            rule,
            basis: basis.into(),
            owner: None,
            expires: None,
            reuse: None,
            after_failure: AfterFailure::default(),
            ambiguous: AmbiguousPolicy::default(),
            key_ignores_proxy: false,
            opened: Opened::default(),
        }
    }

    /// Whether the claim for a page of this site carries only what is declared.
    pub fn check_contents(&self, challenge: &Challenge) -> Result<(), ContentRefusal> {
        contents::check(Some(self), challenge)
    }
}

/// Whether a claim without a page carries only what its kind has.
pub fn check_pageless_contents(challenge: &Challenge) -> Result<(), ContentRefusal> {
    contents::check(None, challenge)
}

#[cfg(test)]
mod tests;
