//! What may be solved: deny by default, every declaration with its written basis.

use std::{collections::BTreeSet, sync::Arc};

use domain::{
    challenge::{Kind, PAGELESS_METHODS, nearest},
    declarations::{Declarations, Images, KnownWorkers},
    site::Site,
};

use super::opened;
use crate::config::{
    ConfigError,
    written::{Given, ImagesKeys, SiteKeys},
};

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

pub(super) fn check(
    keys: Vec<SiteKeys>,
    images: ImagesKeys,
    workers: KnownWorkers,
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
    let mut images = check_images(images, simulated)?;
    if simulated {
        sites.extend(EXAMPLES.iter().map(|host| example(host)));
        images = images.or_else(|| Some(Images::all_kinds(SIMULATED)));
    }
    Ok(Declarations { sites, images, workers })
}

/// `kinds` and `expires` without a basis would look like a declaration and be none.
fn check_images(keys: ImagesKeys, simulated: bool) -> Result<Option<Images>, ConfigError> {
    let kinds = keys.kinds.map(|given| given.check(check_image_kinds)).transpose()?;
    let Some(basis) = keys.basis else {
        if kinds.is_some() || keys.expires.is_some() {
            let what = "basis is missing; write down on what ground these may be solved";
            return Err(ConfigError::at("[images]", what));
        }
        return Ok(None);
    };
    let basis = check_text(basis, "is empty; write down the ground in words")?;
    let default =
        if simulated { Images::all_kinds(SIMULATED).kinds } else { Images::default_kinds() };
    let expires = keys.expires.map(|day| day.value);
    Ok(Some(Images { basis, kinds: kinds.unwrap_or(default), expires }))
}

fn check_image_kinds(kinds: Vec<Kind>) -> Result<BTreeSet<Kind>, String> {
    if kinds.is_empty() {
        return Err("is empty; name a kind, or remove [images] to refuse them all".into());
    }
    let Some(kind) = kinds.iter().find(|kind| !kind.is_pageless()) else {
        return Ok(kinds.into_iter().collect());
    };
    let known: Vec<_> = Kind::known().filter(Kind::is_pageless).collect();
    let names = known.iter().map(Kind::name).chain(PAGELESS_METHODS).collect::<Vec<_>>().join(", ");
    let name = kind.name();
    if let Kind::Other(_) = kind {
        let near = nearest(names.split(", "), name);
        let meant = near.map_or_else(String::new, |near| format!(", did you mean {near:?}?"));
        return Err(format!("{name:?} is no kind without a page{meant}; those are {names}"));
    }
    Err(format!("{name} has a page, so a [[site]] declares it; the kinds without one are {names}"))
}

/// Whether the simulator declared the site by itself.
pub fn is_example(site: &Site) -> bool {
    &*site.basis == SIMULATED
}

fn example(host: &str) -> Site {
    Site::new(host.parse().expect("the reserved names are host rules, see the test"), SIMULATED)
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
        basis: check_text(basis, "is empty; write down the ground in words")?,
        owner: keys
            .owner
            .map(|owner| check_text(owner, "is empty; name a person or team, or leave it out"))
            .transpose()?,
        expires: keys.expires.map(|day| day.value),
        reuse: keys.reuse.map(|reuse| reuse.value),
        after_failure: keys.after_failure.value,
        ambiguous: keys.ambiguous.value,
        key_ignores_proxy: keys.key_ignores_proxy.value,
        opened: opened::check(keys.methods, keys.params, keys.sitekeys)?,
    })
}

fn check_text(text: Given<String>, empty: &'static str) -> Result<Arc<str>, ConfigError> {
    text.check(|text| match text.trim() {
        "" => Err(empty),
        text => Ok(text.into()),
    })
}
