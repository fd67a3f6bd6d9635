//! What a claim may carry beside its page: the site's method, its parameters and their values, its site key. Everything that is
//! not listed for the kind has to be opened by the site's declaration.

use super::{HostRule, PageUrl, Site, targets};
use crate::challenge::{
    Challenge, Kind, OTHER_KEYS, Reading, cookie_hosts, fold, meant_or, nearest, reading,
};

/// What a site's declaration opens, and what it pins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Methods of the provider that have no kind here.
    pub methods: Vec<String>,
    /// Parameters that the kind's own list does not have.
    pub params: Vec<String>,
    /// The only site keys that may be used; all, if empty.
    pub sitekeys: Vec<String>,
}

/// Why the contents of a claim are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ContentRefusal {
    #[error(
        "unknown kind or method {name:?}{} add methods = [{name:?}] to [[site]] {rule}",
        meant_or(.nearest.as_deref(), "to open it,")
    )]
    Method { name: String, nearest: Option<String>, rule: HostRule },
    #[error(
        "{kind} has no parameter `{name}`{} {}",
        meant_or(.nearest.as_deref(), "to send it,"),
        opening(name, .rule.as_ref())
    )]
    Param { kind: Kind, name: String, nearest: Option<String>, rule: Option<HostRule> },
    #[error(
        "`{name}` names {target}, which {} does not cover; a claim may only name hosts of its own site",
        place(.rule.as_ref())
    )]
    Target { name: String, target: String, rule: Option<HostRule> },
    #[error("the site key is not one of the `sitekeys` of [[site]] {rule}")]
    SiteKey { rule: HostRule },
    #[error("[[site]] {rule} pins `sitekeys`, and the claim has no site key")]
    NoSiteKey { rule: HostRule },
}

impl ContentRefusal {
    /// Whether the claim reaches for something that is not declared. Otherwise its form is at fault.
    pub fn is_undeclared(&self) -> bool {
        match self {
            Self::Target { .. } | Self::SiteKey { .. } | Self::NoSiteKey { .. } => true,
            Self::Method { .. } | Self::Param { .. } => false,
        }
    }
}

/// Checks everything but page and kind of picture. `site` is the declaration that covers the page, if the claim has one.
pub(super) fn check(site: Option<&Site>, challenge: &Challenge) -> Result<(), ContentRefusal> {
    check_method(site, challenge.kind())?;
    for name in challenge.params().keys().chain(challenge.files().keys()) {
        check_name(site, challenge.kind(), name)?;
    }
    for (name, value) in challenge.params() {
        check_value(site, challenge, name, value)?;
    }
    site.map_or(Ok(()), |site| check_sitekeys(site, challenge))
}

/// The parameters whose values name a host or URL, as the ledger keeps them.
pub fn targets_of(challenge: &Challenge) -> impl Iterator<Item = (&str, &str)> {
    let params = challenge.params().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    params.filter(|(name, value)| !targets::find(value, reading(challenge.kind(), name)).is_empty())
}

fn check_method(site: Option<&Site>, kind: &Kind) -> Result<(), ContentRefusal> {
    // A method without a page is refused when the challenge is made.
    let (Kind::Other(name), Some(site)) = (kind, site) else { return Ok(()) };
    if site.opened.methods.iter().any(|opened| opened == name) {
        return Ok(());
    }
    let opened = nearest(site.opened.methods.iter().map(String::as_str), name);
    let nearest = opened.or_else(|| kind.nearest()).map(str::to_owned);
    Err(ContentRefusal::Method { name: name.clone(), nearest, rule: site.rule.clone() })
}

fn check_name(site: Option<&Site>, kind: &Kind, name: &str) -> Result<(), ContentRefusal> {
    let opened = site.map_or(&[][..], |site| &site.opened.params);
    if kind.has_param(name) || opened.iter().any(|param| fold(param) == fold(name)) {
        return Ok(());
    }
    let mut known: Vec<&str> = kind.params().collect();
    known.extend(opened.iter().map(String::as_str));
    Err(ContentRefusal::Param {
        kind: kind.clone(),
        name: name.to_owned(),
        nearest: nearest(known.into_iter(), name).map(str::to_owned),
        rule: site.map(|site| site.rule.clone()),
    })
}

fn check_value(
    site: Option<&Site>,
    challenge: &Challenge,
    name: &str,
    value: &str,
) -> Result<(), ContentRefusal> {
    let reading = reading(challenge.kind(), name);
    let vendors = match reading {
        Reading::Vendor(hosts) => hosts,
        Reading::Full | Reading::Blob | Reading::Prose | Reading::Proxy => cookie_hosts(name),
    };
    let is_cookie = !cookie_hosts(name).is_empty();
    let is_parent = |target: &targets::NamedHost| {
        let page: Option<&PageUrl> = challenge.pageurl().filter(|_| is_cookie);
        page.is_some_and(|page| target.is_parent_of(page))
    };
    let is_allowed = |target: &targets::NamedHost| {
        site.is_some_and(|site| target.is_covered_by(&site.rule))
            || target.is_one_of(vendors)
            || is_parent(target)
    };
    match targets::find(value, reading).iter().find(|target| !is_allowed(target)) {
        None => Ok(()),
        Some(target) => Err(ContentRefusal::Target {
            name: name.to_owned(),
            target: target.to_string(),
            rule: site.map(|site| site.rule.clone()),
        }),
    }
}

fn check_sitekeys(site: &Site, challenge: &Challenge) -> Result<(), ContentRefusal> {
    let pins = &site.opened.sitekeys;
    if pins.is_empty() || !challenge.kind().has_sitekey() {
        return Ok(());
    }
    let is_key = |name: &str| {
        matches!(challenge.kind(), Kind::Other(_)) && OTHER_KEYS.contains(&fold(name).as_str())
    };
    let others = challenge.params().iter().filter(|(name, _)| is_key(name));
    let mut given = challenge
        .sitekey()
        .filter(|key| !key.is_empty())
        .into_iter()
        .chain(others.map(|(_, value)| value.as_str()))
        .peekable();
    if given.peek().is_none() {
        return Err(ContentRefusal::NoSiteKey { rule: site.rule.clone() });
    }
    if given.all(|key| pins.iter().any(|pin| pin == key)) {
        Ok(())
    } else {
        Err(ContentRefusal::SiteKey { rule: site.rule.clone() })
    }
}

fn opening(name: &str, rule: Option<&HostRule>) -> String {
    match rule {
        Some(rule) => format!("add params = [{name:?}] to [[site]] {rule}"),
        None => "give the page of a [[site]] that opens it with `params`".to_owned(),
    }
}

fn place(rule: Option<&HostRule>) -> String {
    rule.map_or_else(|| "no declaration".to_owned(), |rule| format!("[[site]] {rule}"))
}

#[cfg(test)]
mod tests;
