//! The options of a store URL, after its question mark. Errors never repeat what was written, because it may be part of a password.

use url::form_urlencoded;

#[derive(Debug)]
pub(crate) struct UrlOptions(Vec<(String, String)>);

/// A name less similar than this is not suggested.
const SIMILAR: f64 = 0.75;

impl UrlOptions {
    /// Reads `name=value&…`; only known names are allowed.
    pub(crate) fn parse(query: &str, known: &[&str]) -> Result<Self, String> {
        let pairs = form_urlencoded::parse(query.as_bytes());
        let pairs: Vec<(String, String)> =
            pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(Self(pairs)),
            Some((unknown, _)) => Err(unknown_option(unknown, known)),
        }
    }

    /// Takes an option out. If it was given more than once, the last value counts.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.0.extract_if(.., |(other, _)| other == name).last().map(|(_, value)| value)
    }

    /// The options that were not taken out.
    pub(crate) fn rest(self) -> Vec<(String, String)> {
        self.0
    }
}

fn unknown_option(unknown: &str, known: &[&str]) -> String {
    let similarity = |name: &str| strsim::jaro_winkler(name, unknown);
    let nearest = known.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let hint = match nearest.filter(|name| similarity(name) >= SIMILAR) {
        Some(name) => format!("; did you mean {name}=?"),
        None => String::new(),
    };
    format!("unknown option after the question mark{hint} (known options: {})", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_names_the_nearest_one_and_is_not_repeated() {
        let error = UrlOptions::parse("perfix=geheim", &["prefix", "ca"]).unwrap_err();
        assert!(error.contains("did you mean prefix=?"), "{error}");
        assert!(!error.contains("perfix") && !error.contains("geheim"), "{error}");
        let error = UrlOptions::parse("xyz=1", &["prefix", "ca"]).unwrap_err();
        assert!(!error.contains("did you mean") && error.contains("prefix, ca"), "{error}");
    }

    #[test]
    fn the_last_value_of_an_option_counts() {
        let mut options = UrlOptions::parse("a=1&b=%2F&a=2", &["a", "b"]).unwrap();
        assert_eq!(options.take("a").as_deref(), Some("2"));
        assert_eq!(options.take("a"), None);
        assert_eq!(options.rest(), [("b".to_owned(), "/".to_owned())]);
    }
}
