//! What failures mean: a profile, single values over it, and single codes over those.

use std::{collections::BTreeMap, time::Duration};

use domain::retry::{Backoff, Class, Code, IN_PHP, Jitter, Override, Profile, RetryTable};

use super::plain;
use crate::config::{
    ConfigError,
    raw::{RawOverride, RawRetry},
};

/// A wait is never longer, whatever is written.
const LONGEST: Duration = Duration::from_secs(3600);
/// A solve is never tried more often, whatever is written.
const MOST_RETRIES: u32 = 100;

pub(super) fn check(raw: RawRetry) -> Result<RetryTable, ConfigError> {
    let profile = check_profile(raw.profile.as_deref())?;
    let jitter = check_jitter(raw.jitter.as_deref())?;
    let overrides = raw
        .codes
        .into_iter()
        .map(|(code, raw)| check_override(&code, raw))
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    let backoff = check_backoff(profile.backoff(), raw.base, raw.cap, raw.most)?;
    RetryTable::new(IN_PHP, backoff, jitter, &overrides)
        .map_err(|refused| ConfigError::at(place(refused.code.as_str()), refused.why))
}

fn place(code: &str) -> String {
    format!("[retry.codes.{code:?}]")
}

fn check_profile(written: Option<&str>) -> Result<Profile, ConfigError> {
    match written {
        None | Some("default") => Ok(Profile::Default),
        Some("conservative") => Ok(Profile::Conservative),
        Some("aggressive") => Ok(Profile::Aggressive),
        Some(_) => Err(ConfigError::at(
            "[retry] profile",
            "expected \"default\", \"conservative\" or \"aggressive\"",
        )),
    }
}

fn check_jitter(written: Option<&str>) -> Result<Jitter, ConfigError> {
    match written {
        None | Some("full") => Ok(Jitter::Full),
        Some("additive") => Ok(Jitter::Additive),
        Some(_) => Err(ConfigError::at("[retry] jitter", "expected \"full\" or \"additive\"")),
    }
}

fn check_backoff(
    usual: Backoff,
    base: Option<String>,
    cap: Option<String>,
    most: Option<u32>,
) -> Result<Backoff, ConfigError> {
    let base = plain::some_duration_or("[retry] base", base, usual.base)?;
    let cap = plain::some_duration_or("[retry] cap", cap, usual.cap.max(base))?;
    let most = most.unwrap_or(usual.most);
    if cap < base {
        return Err(ConfigError::at("[retry] cap", "is less than base; no wait could grow"));
    }
    if cap > LONGEST {
        return Err(ConfigError::at("[retry] cap", "is an hour at most"));
    }
    if most > MOST_RETRIES {
        return Err(ConfigError::at("[retry] most", "is 100 at most"));
    }
    Ok(Backoff { base, cap, most })
}

fn check_override(written: &str, raw: RawOverride) -> Result<(Code, Override), ConfigError> {
    let place = place(written);
    let code = Code::new(written);
    let is_known = IN_PHP.iter().any(|rule| rule.code == written);
    if !is_known && raw.class.is_none() {
        return Err(ConfigError::at(place, unknown(written)));
    }
    let class = raw.class.map(|name| {
        let names = Class::ALL.map(|class| format!("{:?}", class.name())).join(", ");
        Class::named(&name)
            .ok_or_else(|| ConfigError::at(&place, format!("class is one of {names}")))
    });
    let wait = raw.wait.map(|text| plain::duration_or(&place, Some(text), Duration::ZERO));
    let change = Override {
        class: class.transpose()?,
        max: raw.max,
        backoff: raw.backoff,
        wait: wait.transpose()?,
    };
    Ok((code, change))
}

fn unknown(written: &str) -> String {
    let likeness = |code: &str| strsim::jaro_winkler(code, written);
    let nearest = IN_PHP
        .iter()
        .map(|rule| &*rule.code)
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|code| likeness(code) >= 0.9);
    let hint = nearest.map_or(".".into(), |code| format!("; did you mean {code:?}?"));
    format!("the table does not know this code{hint} A new one needs its class too.")
}
