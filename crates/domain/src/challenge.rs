//! Challenges: what has to be solved. A challenge is checked once, when it is built, and never changes.

mod kind;
mod params;

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize, Serializer};

use crate::{secret::REDACTED, site::PageUrl};

pub use kind::{Kind, PAGELESS_METHODS, Sharing};
pub(crate) use params::{OTHER_KEYS, cookie_hosts, reading};
pub use params::{READINGS, RESERVED, Reading, fold, nearest};

/// A checked challenge. Parameters keep the provider's names; reserved names are refused.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    kind: Kind,
    sitekey: Option<String>,
    pageurl: Option<PageUrl>,
    #[serde(serialize_with = "hide_values")]
    params: BTreeMap<String, String>,
    #[serde(serialize_with = "hide_values")]
    files: BTreeMap<String, Vec<u8>>,
}

/// The parts of a challenge before they are checked.
#[derive(Clone, Debug, Default)]
pub struct ChallengeParts {
    /// The site's public key for its widget (`googlekey`, `sitekey`, `publickey`, `gt`, `captcha_id`).
    pub sitekey: Option<String>,
    /// The page, already parsed strictly.
    pub pageurl: Option<PageUrl>,
    /// All other parameters, by the provider's names.
    pub params: BTreeMap<String, String>,
    /// Decoded pictures; the main one is called `body`.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Why a challenge is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadChallenge {
    #[error(
        "the kind {name:?} is not a name of 1-40 lower-case letters, digits and _{}",
        meant(.nearest.as_deref())
    )]
    Kind { name: String, nearest: Option<String> },
    #[error("{kind} needs `{part}`")]
    Missing { kind: Kind, part: &'static str },
    /// No kind has this name, and without a page no site can have opened it.
    #[error(
        "unknown kind or method {name:?}{}; a method that a [[site]] opens with `methods` needs `pageurl`",
        meant(.nearest.as_deref())
    )]
    UnknownKind { name: String, nearest: Option<String> },
    #[error(
        "`{0}` would stand in for a field that the gateway sets or checks (page, site key, account); leave it out"
    )]
    Reserved(String),
    #[error("`sitekey` is not 1-512 visible ASCII characters without & = ? #")]
    SiteKey,
    /// A parameter name that could change the meaning of the request we send.
    #[error("the parameter name {0:?} is not 1-64 letters, digits and _ - [ ]")]
    Name(String),
    #[error("`{name}` {why}")]
    Value { name: String, why: &'static str },
    #[error(
        "the challenge has too many parts: at most 64 parameters of 128 KiB together, files of 1 MiB together"
    )]
    TooLarge,
}

const SITEKEY_MAX: usize = 512;
const PARAMS_MAX: usize = 64;
const PARAM_BYTES_MAX: usize = 128 * 1024;
/// The size of all files of a challenge together.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

// === impl Challenge ===

impl Challenge {
    /// Checks the parts, so that every challenge can be sent.
    pub fn new(kind: Kind, parts: ChallengeParts) -> Result<Self, BadChallenge> {
        let ChallengeParts { sitekey, pageurl, params, files } = parts;
        let challenge = Self { kind, sitekey, pageurl, params, files };
        challenge.check_sizes()?;
        if let Some(sitekey) = &challenge.sitekey {
            check_sitekey(sitekey)?;
        }
        for (name, value) in &challenge.params {
            check_name(&challenge.kind, name)?;
            check_value(name, value, PARAM_BYTES_MAX)?;
        }
        if let (Kind::Other(name), None) = (&challenge.kind, &challenge.pageurl) {
            let nearest = challenge.kind.nearest().map(str::to_owned);
            return Err(BadChallenge::UnknownKind { name: name.clone(), nearest });
        }
        match challenge.kind.needs().iter().find(|part| !challenge.has(part)) {
            Some(part) => Err(BadChallenge::Missing { kind: challenge.kind.clone(), part }),
            None => Ok(challenge),
        }
    }

    fn check_sizes(&self) -> Result<(), BadChallenge> {
        let params: usize = self.params.iter().map(|(k, v)| k.len() + v.len()).sum();
        let fits = self.params.len() <= PARAMS_MAX
            && params <= PARAM_BYTES_MAX
            && self.file_bytes() <= FILE_BYTES_MAX;
        if fits { Ok(()) } else { Err(BadChallenge::TooLarge) }
    }

    fn has(&self, part: &str) -> bool {
        match part {
            "sitekey" => self.sitekey.as_ref().is_some_and(|key| !key.is_empty()),
            "pageurl" => self.pageurl.is_some(),
            "body" => self.files.get("body").is_some_and(|body| !body.is_empty()),
            param => self.params.get(param).is_some_and(|value| !value.is_empty()),
        }
    }

    /// The kind of challenge.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The site's public key for its widget.
    pub fn sitekey(&self) -> Option<&str> {
        self.sitekey.as_deref()
    }

    /// The page, in its canonical form.
    pub fn pageurl(&self) -> Option<&PageUrl> {
        self.pageurl.as_ref()
    }

    /// All other parameters, in order of their names.
    pub fn params(&self) -> &BTreeMap<String, String> {
        &self.params
    }

    /// Whether it has anything besides what a declaration shows: proxies and cookies are parameters, and a picture can show
    /// anything.
    pub fn holds_secret(&self) -> bool {
        !self.params.is_empty() || !self.files.is_empty()
    }

    /// The size of all pictures together.
    pub fn file_bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// The same challenge without its pictures, for a process that only queues it. It cannot be submitted.
    #[must_use]
    pub fn without_files(&self) -> Self {
        Self {
            kind: self.kind.clone(),
            sitekey: self.sitekey.clone(),
            pageurl: self.pageurl.clone(),
            params: self.params.clone(),
            files: BTreeMap::new(),
        }
    }

    /// Decoded pictures, in order of their names.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }
}

/// Shows the names of parameters only, because their values may be proxies with passwords, or cookies.
impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge")
            .field("kind", &self.kind)
            .field("pageurl", &self.pageurl)
            .field("params", &self.params.keys())
            .field("files", &self.files.keys())
            .finish_non_exhaustive()
    }
}

/// Formats that people can read show the names only, as [`Secret`](crate::secret::Secret) does.
fn hide_values<V: Serialize, S: Serializer>(
    values: &BTreeMap<String, V>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        return serializer.collect_map(values.keys().map(|name| (name, REDACTED)));
    }
    values.serialize(serializer)
}

/// Continues a message about an unknown name.
pub(crate) fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(", did you mean {nearest:?}?"))
}

/// The same, followed by the remedy for a name that was meant as it is.
pub(crate) fn meant_or(nearest: Option<&str>, remedy: &str) -> String {
    let Some(nearest) = nearest else { return format!("; {remedy}") };
    format!("{} Otherwise, {remedy}", meant(Some(nearest)))
}

/// Checks a site key. An empty one counts as missing where the kind needs one.
pub fn check_sitekey(sitekey: &str) -> Result<(), BadChallenge> {
    let plain = |b: u8| b.is_ascii_graphic() && !b"&=?#".contains(&b);
    if sitekey.len() > SITEKEY_MAX || !sitekey.bytes().all(plain) {
        return Err(BadChallenge::SiteKey);
    }
    Ok(())
}

/// Checks that a name cannot change the meaning of the request we send.
pub fn check_name(kind: &Kind, name: &str) -> Result<(), BadChallenge> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-[].".contains(&b);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(BadChallenge::Name(name.chars().take(80).collect()));
    }
    if params::is_checked_field(kind, name) {
        return Err(BadChallenge::Reserved(name.to_owned()));
    }
    Ok(())
}

fn check_value(name: &str, value: &str, longest: usize) -> Result<(), BadChallenge> {
    let refused = |why| Err(BadChallenge::Value { name: name.to_owned(), why });
    if value.len() > longest {
        return refused("is too long");
    }
    // Line breaks are legitimate in instructions and questions, never in identifiers.
    let prose =
        matches!(name, "textinstructions" | "instructions" | "textcaptcha" | "imginstructions");
    let allowed = |c: char| !c.is_control() || (prose && matches!(c, '\n' | '\r' | '\t'));
    if value.chars().all(allowed) { Ok(()) } else { refused("contains control characters") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> ChallengeParts {
        let pageurl = PageUrl::parse("https://shop.example.com/login").unwrap();
        ChallengeParts {
            sitekey: Some("0x4AAA".into()),
            pageurl: Some(pageurl),
            ..ChallengeParts::default()
        }
    }

    #[test]
    fn a_kind_is_its_name_and_back() {
        for kind in Kind::known() {
            assert_eq!(kind.name().parse(), Ok(kind.clone()));
        }
        assert_eq!("yandex_smart".parse(), Ok(Kind::Other("yandex_smart".into())));
        assert!("../../res.php".parse::<Kind>().is_err());
    }

    #[test]
    fn reserved_fields_cannot_be_smuggled() {
        for name in RESERVED {
            let mut parts = parts();
            parts.params.insert(name.into(), "x".into());
            assert_eq!(
                Challenge::new(Kind::Turnstile, parts),
                Err(BadChallenge::Reserved(name.into()))
            );
        }
    }

    #[test]
    fn parts_that_could_break_the_wire_are_refused() {
        let with = |sitekey: &str| {
            Challenge::new(
                Kind::Turnstile,
                ChallengeParts { sitekey: Some(sitekey.into()), ..parts() },
            )
        };
        assert!(with("0x4A\r\nX: y").is_err());
        assert!(with("a\0b").is_err());
        assert!(with(&"k".repeat(3000)).is_err());
        assert!(with("").is_err());
        for refused in ["a b", "a&b", "a=b", "a?b", "a#b", "ключ"] {
            assert_eq!(with(refused), Err(BadChallenge::SiteKey), "{refused}");
        }
        assert!(with("';DROP-TABLE/solves;--").is_ok());
        assert!(with(&"k".repeat(512)).is_ok() && with(&"k".repeat(513)).is_err());
    }

    #[test]
    fn debug_shows_no_values() {
        let mut parts = parts();
        parts.params.insert("proxy".into(), "user:canary@host:1".into());
        let shown = format!("{:?}", Challenge::new(Kind::Turnstile, parts).unwrap());
        assert!(!shown.contains("canary") && shown.contains("proxy"), "{shown}");
    }
}
