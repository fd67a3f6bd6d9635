//! What failures mean: a profile, single values over it, and single codes over those.

use std::{collections::BTreeMap, time::Duration};

use domain::retry::{Backoff, Code, IN_PHP, Override, RetryTable};

use crate::config::{
    ConfigError,
    written::{CodeKeys, NonZeroDuration, RetryKeys, nearest},
};

const MAX_CAP: Duration = Duration::from_secs(3600);
const MAX_RETRIES: u32 = 100;

pub(super) fn check(keys: RetryKeys) -> Result<RetryTable, ConfigError> {
    let each = keys.codes.into_iter().map(|(code, keys)| check_code(code, keys));
    let overrides = each.collect::<Result<BTreeMap<_, _>, _>>()?;
    let usual = keys.profile.value.backoff();
    let base = keys.base.map_or(usual.base, |base| base.value.0);
    let check_cap = |NonZeroDuration(cap)| match cap {
        cap if cap < base => Err("is less than base; no backoff could grow"),
        cap if cap > MAX_CAP => Err("is an hour at most"),
        cap => Ok(cap),
    };
    let check_most = |most| if most > MAX_RETRIES { Err("is 100 at most") } else { Ok(most) };
    let cap = keys.cap.map(|cap| cap.check(check_cap)).transpose()?;
    let cap = cap.unwrap_or(usual.cap.max(base));
    if cap > MAX_CAP {
        return Err(ConfigError::at("[retry] base", "is an hour at most"));
    }
    let most = keys.most.map(|most| most.check(check_most)).transpose()?.unwrap_or(usual.most);
    RetryTable::new(IN_PHP, Backoff { base, cap, most }, keys.jitter.value, &overrides)
        .map_err(|refused| ConfigError::at(place(refused.code.as_str()), refused.why))
}

fn place(code: &str) -> String {
    format!("[retry.codes.{code:?}]")
}

fn check_code(code: Code, keys: CodeKeys) -> Result<(Code, Override), ConfigError> {
    let is_known = IN_PHP.iter().any(|rule| rule.code == code.as_str());
    if !is_known && keys.class.is_none() {
        return Err(ConfigError::at(place(code.as_str()), unknown(code.as_str())));
    }
    let change = Override {
        class: keys.class.map(|class| class.value),
        max: keys.max.map(|max| max.value),
        backoff: keys.backoff.map(|backoff| backoff.value),
        wait: keys.wait.map(|wait| wait.value),
    };
    Ok((code, change))
}

fn unknown(written: &str) -> String {
    // Most codes begin alike, so only a very similar one is worth a hint.
    let near = nearest(IN_PHP.iter().map(|rule| &*rule.code), written, 0.9);
    let hint = near.map_or(".".into(), |code| format!("; did you mean {code:?}?"));
    format!("the table does not know this code{hint} A new one needs its class too.")
}
