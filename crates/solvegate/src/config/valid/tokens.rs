//! Lifetimes of tokens by kind.

use std::collections::BTreeMap;

use domain::{challenge::Kind, token::TokenLifetime};

use crate::config::{ConfigError, written::TokenKeys};

pub(super) fn lifetimes(
    keys: BTreeMap<Kind, TokenKeys>,
) -> Result<BTreeMap<Kind, TokenLifetime>, ConfigError> {
    let each = |(kind, keys): (Kind, TokenKeys)| {
        let (lifetime, margin) = kind.lifetime_and_margin();
        let lifetime = keys.lifetime.map_or(lifetime, |given| given.value);
        let margin = keys.margin.map_or(margin, |given| given.value);
        let life = TokenLifetime::new(lifetime, margin)
            .map_err(|why| ConfigError::at(format!("[tokens.{}]", kind.name()), why))?;
        Ok((kind, life))
    };
    keys.into_iter().map(each).collect()
}
