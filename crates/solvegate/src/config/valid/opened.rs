//! What a site opens beyond the kinds and parameters that everybody has, and the site keys it pins.

use domain::{
    challenge::{Kind, check_name, check_sitekey},
    site::{Opened, Site},
};

use crate::config::{ConfigError, written::Given};

/// More entries than any site needs; each claim is compared with all of them.
const MOST: usize = 1000;

pub(super) fn check(
    methods: Given<Vec<String>>,
    params: Given<Vec<String>>,
    sitekeys: Given<Vec<String>>,
) -> Result<Opened, ConfigError> {
    Ok(Opened {
        methods: methods.check(|list| check_list(list, check_method))?,
        params: params.check(|list| check_list(list, check_param))?,
        sitekeys: sitekeys.check(|list| check_list(list, check_pin))?,
    })
}

fn check_list(
    list: Vec<String>,
    check: fn(&str) -> Result<(), String>,
) -> Result<Vec<String>, String> {
    if list.len() > MOST {
        return Err(format!("has more than {MOST} entries"));
    }
    list.iter().try_for_each(|entry| check(entry))?;
    Ok(list)
}

fn check_method(name: &str) -> Result<(), String> {
    match name.parse::<Kind>() {
        Err(bad) => Err(bad.to_string()),
        Ok(Kind::Other(other)) if other == "other" => {
            Err("write the provider's own names for its methods, not \"other\"".to_owned())
        }
        Ok(kind @ Kind::Other(_)) if kind.is_method_of_known_kind() => {
            Err(format!("{name:?} is the method of a known kind, which is open already"))
        }
        Ok(Kind::Other(_)) => Ok(()),
        Ok(_) => Err(format!("{name:?} is a known kind, which is open already; leave it out")),
    }
}

/// The name must be free for every kind, because the site opens it for all of them. Only opened methods may have names such as
/// `captcha_id`, which other kinds use for their site key.
fn check_param(name: &str) -> Result<(), String> {
    check_name(&Kind::Other("other".to_owned()), name).map_err(|bad| bad.to_string())
}

fn check_pin(sitekey: &str) -> Result<(), String> {
    if sitekey.is_empty() {
        return Err("has an empty site key".to_owned());
    }
    check_sitekey(sitekey).map_err(|_| {
        format!("{sitekey:?} is not 1-512 visible ASCII characters without spaces, & = ? #")
    })
}

/// Refuses names of unknown kinds in tables by kind, unless a site opens them: a typo would silently change nothing.
pub(super) fn check_kinds<'k>(
    place: &str,
    kinds: impl Iterator<Item = &'k Kind>,
    sites: &[Site],
) -> Result<(), ConfigError> {
    for kind in kinds {
        let Kind::Other(name) = kind else { continue };
        if sites.iter().any(|site| site.opened.methods.contains(name)) {
            continue;
        }
        let meant =
            kind.nearest().map_or_else(String::new, |near| format!(", did you mean {near:?}?"));
        let what = format!(
            "unknown kind {name:?}{meant}; a method of the provider has to be in `methods` of a [[site]]"
        );
        return Err(ConfigError::at(place, what));
    }
    Ok(())
}
