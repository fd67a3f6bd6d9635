//! Standing orders for tokens, checked against the declared sites.

use std::collections::BTreeSet;

use domain::{
    challenge::{Challenge, Sharing},
    declarations::Declarations,
    fingerprint::{Fingerprint, Identity},
    pool::{Level, PoolSize},
    time::Timestamp,
};
use engine::PoolWish;
use wire::submit::V1Parts;

use super::budgets;
use crate::config::{
    ConfigError,
    written::{AutoOr, Given, PoolKeys},
};

pub(super) fn check(
    keys: Vec<PoolKeys>,
    declared: &Declarations,
) -> Result<Vec<PoolWish>, ConfigError> {
    let mut known = BTreeSet::new();
    let mut wishes = Vec::new();
    for (at, keys) in keys.into_iter().enumerate() {
        let place = format!("[[pool]] number {}", at + 1);
        let wish = check_pool(&place, keys)?;
        let identity = check_page(&place, &wish.challenge, declared)?;
        if !known.insert(Fingerprint::of(&wish.challenge, identity)) {
            let what = "is for the same challenge as an earlier one; keep one of them";
            return Err(ConfigError::at(place, what));
        }
        wishes.push(wish);
    }
    Ok(wishes)
}

fn check_pool(place: &str, keys: PoolKeys) -> Result<PoolWish, ConfigError> {
    let refused = |what: String| ConfigError::at(place, what);
    let kind = keys.kind.ok_or_else(|| refused("kind is missing".into()))?.value;
    if kind.sharing() != Sharing::Exclusive {
        return Err(refused(engine::PoolRefusal::Kind(kind.name().to_owned()).to_string()));
    }
    let text = |given: Option<Given<String>>| given.map(|given| given.value);
    let parts = V1Parts {
        sitekey: text(keys.sitekey),
        pageurl: text(keys.pageurl),
        params: keys.params.value.0.into_iter().collect(),
        image: None,
    };
    let challenge = wire::submit::challenge(kind, parts).map_err(|bad| refused(bad.to_string()))?;
    let level = match keys.level.value {
        AutoOr::Auto => Level::Auto,
        AutoOr::Number(level) => Level::Fixed(level),
    };
    let size = PoolSize::new(level, Some(keys.max.value), Some(keys.waste.value))
        .map_err(|bad| refused(bad.to_string()))?;
    Ok(PoolWish {
        challenge,
        project: keys.project.value,
        level: size.level,
        most: size.most,
        waste: size.waste,
        budget: budgets::allowance(keys.budget),
    })
}

/// An expired declaration is accepted here: the engine checks it at start and before every order.
fn check_page(
    place: &str,
    challenge: &Challenge,
    declared: &Declarations,
) -> Result<Identity, ConfigError> {
    let Some(page) = challenge.pageurl() else {
        return Err(ConfigError::at(place, "pageurl is missing"));
    };
    let site = declared
        .site(page, Timestamp::default())
        .map_err(|refusal| ConfigError::at(place, refusal.to_string()))?;
    let contents = site.check_contents(challenge);
    contents.map_err(|refusal| ConfigError::at(place, refusal.to_string()))?;
    Ok(Identity { ignores_proxy: site.key_ignores_proxy })
}
