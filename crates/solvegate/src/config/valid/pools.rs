//! Standing orders: what is to be kept ready, checked against the declared sites.

use std::collections::BTreeSet;

use domain::{
    challenge::{Challenge, Sharing},
    fingerprint::{Fingerprint, Identity},
    id::Project,
    pool::Level,
    time::Timestamp,
};
use doors::PoolSize;
use engine::PoolWish;
use wire::submit::V1Parts;

use super::{plain, sites::Declarations};
use crate::config::{
    ConfigError,
    raw::{RawAutoOr, RawParam, RawPool},
};

/// What the cost is charged to when nothing is said.
const PROJECT: &str = "pool";

pub(super) fn check(
    raw: Vec<RawPool>,
    declared: &Declarations,
) -> Result<Vec<PoolWish>, ConfigError> {
    let mut known = BTreeSet::new();
    let mut wishes = Vec::new();
    for (at, raw) in raw.into_iter().enumerate() {
        let place = format!("[[pool]] number {}", at + 1);
        let wish = check_pool(&place, raw)?;
        let identity = check_page(&place, &wish.challenge, declared)?;
        if !known.insert(Fingerprint::of(&wish.challenge, identity)) {
            let what = "is for the same challenge as one above; keep one of them";
            return Err(ConfigError::at(place, what));
        }
        wishes.push(wish);
    }
    Ok(wishes)
}

fn check_pool(place: &str, raw: RawPool) -> Result<PoolWish, ConfigError> {
    let refused = |what: String| ConfigError::at(place, what);
    let kind = raw.kind.ok_or_else(|| refused("kind is missing".into()))?;
    let kind = plain::kind(place, &kind)?;
    if kind.sharing() != Sharing::Exclusive {
        return Err(refused(engine::PoolRefusal::Kind(kind.name().to_owned()).to_string()));
    }
    let params = raw.params.into_iter().map(|(name, RawParam(value))| (name, value)).collect();
    let parts = V1Parts { sitekey: raw.sitekey, pageurl: raw.pageurl, params, image: None };
    let challenge = wire::submit::challenge(kind, parts).map_err(|bad| refused(bad.to_string()))?;
    let size = PoolSize::new(check_level(place, raw.level)?, raw.max, raw.waste)
        .map_err(|bad| refused(bad.to_string()))?;
    let project = raw.project.as_deref().unwrap_or(PROJECT);
    Ok(PoolWish {
        challenge,
        project: Project::new(project).map_err(|bad| refused(bad.to_string()))?,
        level: size.level,
        most: size.most,
        waste: size.waste,
    })
}

fn check_level(place: &str, raw: Option<RawAutoOr>) -> Result<Level, ConfigError> {
    match raw {
        None => Ok(Level::Auto),
        Some(RawAutoOr::Word(word)) if word == "auto" => Ok(Level::Auto),
        Some(RawAutoOr::Word(_)) => {
            Err(ConfigError::at(place, "level: expected \"auto\" or a number"))
        }
        Some(RawAutoOr::Number(level)) => Ok(Level::Fixed(level)),
    }
}

/// Whether a declaration has run out by now is seen at the start, and at every order.
fn check_page(
    place: &str,
    challenge: &Challenge,
    declared: &Declarations,
) -> Result<Identity, ConfigError> {
    let Some(page) = challenge.pageurl() else {
        return Err(ConfigError::at(place, "pageurl is missing"));
    };
    let sites = declared.sites();
    let site = sites
        .check(page, Timestamp::default())
        .map_err(|refusal| ConfigError::at(place, refusal.to_string()))?;
    Ok(Identity { ignores_proxy: site.key_ignores_proxy })
}
