//! Query strings: only parameters the route knows, each at most once.

use std::{ops::RangeInclusive, str::FromStr};

use url::form_urlencoded;

use crate::error::Refusal;

#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string with parameters out of `known`.
    pub(super) fn read(raw: Option<&str>, known: &[&str]) -> Result<Self, Refusal> {
        let mut query = Self::default();
        for (name, value) in form_urlencoded::parse(raw.unwrap_or_default().as_bytes()) {
            if !known.contains(&name.as_ref()) {
                return Err(Refusal::BadQuery(unknown(&name, known)));
            }
            if query.get(&name).is_some() {
                return Err(Refusal::BadQuery(format!("`{name}` is given more than once")));
            }
            query.0.push((name.into_owned(), value.into_owned()));
        }
        Ok(query)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A parsed parameter; `form` completes the error "`name` is not …".
    pub(super) fn parsed<T: FromStr>(&self, name: &str, form: &str) -> Result<Option<T>, Refusal> {
        let refused = |_| Refusal::BadQuery(format!("`{name}` is not {form}"));
        self.get(name).map(str::parse).transpose().map_err(refused)
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        Ok(self.parsed(name, "true or false")?.unwrap_or(false))
    }

    pub(super) fn number(
        &self,
        name: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Refusal> {
        let form = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        let number = self.parsed::<u64>(name, &form)?;
        match number {
            Some(number) if !bounds.contains(&number) => {
                Err(Refusal::BadQuery(format!("`{name}` is not {form}")))
            }
            Some(_) | None => Ok(number),
        }
    }
}

/// The name is quoted in full unless it is too long for a message.
fn unknown(name: &str, known: &[&str]) -> String {
    let short: String = name.chars().take(40).collect();
    if known.is_empty() {
        return format!("unknown parameter {short:?}; this call has none");
    }
    let meant = domain::challenge::nearest(known.iter().copied(), name);
    let meant = meant.map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
    let mark = if meant.is_empty() { ";" } else { "" };
    format!("unknown parameter {short:?}{meant}{mark} known are: {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_known_and_given_once() {
        let query = Query::read(Some("limit=5&kind=a%20b"), &["limit", "kind"]).unwrap();
        assert_eq!(query.number("limit", 1..=200).unwrap(), Some(5));
        assert_eq!(query.get("kind"), Some("a b"));
        for bad in ["limit=1&limit=1", "offset=-1", "limit=1&Limit=2"] {
            assert!(Query::read(Some(bad), &["limit"]).is_err(), "{bad}");
        }
        for bad in ["limit=0", "limit=-1", "limit=201", "limit=", "limit=1e3"] {
            let query = Query::read(Some(bad), &["limit"]).unwrap();
            assert!(query.number("limit", 1..=200).is_err(), "{bad}");
        }
    }
}
