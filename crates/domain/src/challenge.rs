//! What has to be solved: an immutable, checked value. The doors make it, the upstream sends it.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::site::PageUrl;

/// A family of challenges. `Other` keeps the provider's own word: new ones appear several times a year.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kind {
    /// reCAPTCHA v2, visible or invisible.
    RecaptchaV2,
    /// reCAPTCHA v3, scored.
    RecaptchaV3,
    /// hCaptcha.
    Hcaptcha,
    /// Cloudflare Turnstile.
    Turnstile,
    /// Cloudflare's challenge page; its clearance is bound to proxy and user agent.
    CloudflareChallenge,
    /// GeeTest v3.
    Geetest,
    /// GeeTest v4.
    GeetestV4,
    /// `FunCaptcha`.
    Funcaptcha,
    /// The text in a picture.
    Image,
    /// A question in words.
    TextQuestion,
    /// Cells of a grid.
    Grid,
    /// Points in a picture.
    Coordinates,
    /// Nine pictures and an instruction.
    Bls,
    /// The angle of a picture.
    Rotate,
    /// Any other method of the provider, by its name there.
    Other(String),
}

/// Whether one token may serve several claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// The site accepts the token once.
    Exclusive,
    /// Works again, but only with the same proxy and user agent (both are in the fingerprint).
    Bound,
    /// The same picture has the same text.
    Shared,
}

/// What has to be solved. Parameters keep the provider's names; reserved ones cannot get in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    kind: Kind,
    sitekey: Option<String>,
    pageurl: Option<PageUrl>,
    params: BTreeMap<String, String>,
    files: BTreeMap<String, Vec<u8>>,
}

/// The parts of a challenge before they are checked.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The site's public key for its widget (`googlekey`, `sitekey`, `publickey`, `gt`, `captcha_id`).
    pub sitekey: Option<String>,
    /// The page, already parsed strictly.
    pub pageurl: Option<PageUrl>,
    /// All other parameters, by the provider's names.
    pub params: BTreeMap<String, String>,
    /// Decoded pictures; the main one is called `body`.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Why the parts do not make a challenge.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadChallenge {
    /// The kind's name is empty, too long or has odd characters.
    #[error("the kind {0:?} is not a name of 1-40 lower-case letters, digits and _")]
    Kind(String),
    /// A part this kind cannot do without.
    #[error("{kind} needs `{part}`")]
    Missing {
        /// The kind.
        kind: Kind,
        /// The missing part.
        part: &'static str,
    },
    /// A field that belongs to the gateway, not to the challenge.
    #[error("`{0}` is set by the gateway and cannot be given")]
    Reserved(String),
    /// A parameter name that could break the wire.
    #[error("the parameter name {0:?} is not 1-64 letters, digits and _ - [ ]")]
    Name(String),
    /// Control characters, or too long.
    #[error("`{name}` {why}")]
    Value {
        /// The field.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Too many or too large parts altogether.
    #[error(
        "the challenge has too many parts: at most 64 parameters of 128 KiB together, files of 1 MiB together"
    )]
    TooLarge,
}

/// Fields of the protocol that are never part of a challenge and never forwarded from a caller.
pub const RESERVED: [&str; 12] = [
    "key",
    "json",
    "soft_id",
    "header_acao",
    "pingback",
    "method",
    "action_type",
    "idempotency_key",
    "hold",
    "debug_dump",
    "server",
    "api_base",
];

const KINDS: [(&str, Kind); 14] = [
    ("recaptcha_v2", Kind::RecaptchaV2),
    ("recaptcha_v3", Kind::RecaptchaV3),
    ("hcaptcha", Kind::Hcaptcha),
    ("turnstile", Kind::Turnstile),
    ("cloudflare_challenge", Kind::CloudflareChallenge),
    ("geetest", Kind::Geetest),
    ("geetest_v4", Kind::GeetestV4),
    ("funcaptcha", Kind::Funcaptcha),
    ("image", Kind::Image),
    ("text", Kind::TextQuestion),
    ("grid", Kind::Grid),
    ("coordinates", Kind::Coordinates),
    ("bls", Kind::Bls),
    ("rotate", Kind::Rotate),
];

const SITEKEY_MAX: usize = 512;
const PARAMS_MAX: usize = 64;
const PARAM_BYTES_MAX: usize = 128 * 1024;
/// Pictures of one challenge together.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

// === impl Kind ===

impl Kind {
    /// The kind's name in config, API and metrics.
    pub fn name(&self) -> &str {
        if let Self::Other(name) = self {
            return name;
        }
        KINDS.iter().find(|(_, kind)| kind == self).map_or("other", |(name, _)| name)
    }

    /// The kinds with a name of their own.
    pub fn known() -> impl Iterator<Item = Self> {
        KINDS.into_iter().map(|(_, kind)| kind)
    }

    /// Whether a token of this kind may serve several claims. Unknown kinds are exclusive: a token
    /// given out twice fails at the site, a second solve only costs.
    pub fn sharing(&self) -> Sharing {
        match self {
            Self::Image
            | Self::TextQuestion
            | Self::Grid
            | Self::Coordinates
            | Self::Bls
            | Self::Rotate => Sharing::Shared,
            Self::CloudflareChallenge => Sharing::Bound,
            Self::RecaptchaV2
            | Self::RecaptchaV3
            | Self::Hcaptcha
            | Self::Turnstile
            | Self::Geetest
            | Self::GeetestV4
            | Self::Funcaptcha
            | Self::Other(_) => Sharing::Exclusive,
        }
    }

    /// Pictures and questions carry no page: they need a declaration of their own.
    pub fn is_pageless(&self) -> bool {
        self.sharing() == Sharing::Shared
    }

    /// How long a token lives from the moment it was solved, and how much of it is held back.
    pub fn lifetime_and_margin(&self) -> (Duration, Duration) {
        let (life, margin) = match self {
            Self::Turnstile => (300, 50),
            Self::CloudflareChallenge => (900, 60),
            Self::Image
            | Self::TextQuestion
            | Self::Grid
            | Self::Coordinates
            | Self::Bls
            | Self::Rotate => (86_400, 0),
            Self::RecaptchaV2
            | Self::RecaptchaV3
            | Self::Hcaptcha
            | Self::Geetest
            | Self::GeetestV4
            | Self::Funcaptcha
            | Self::Other(_) => (120, 40),
        };
        (Duration::from_secs(life), Duration::from_secs(margin))
    }

    /// What this kind cannot do without.
    fn needs(&self) -> &'static [&'static str] {
        match self {
            Self::RecaptchaV2
            | Self::RecaptchaV3
            | Self::Hcaptcha
            | Self::Turnstile
            | Self::GeetestV4
            | Self::Funcaptcha => &["sitekey", "pageurl"],
            Self::Geetest => &["sitekey", "pageurl", "challenge"],
            Self::CloudflareChallenge => &["pageurl", "proxy", "proxytype"],
            Self::Image | Self::Grid | Self::Coordinates => &["body"],
            Self::TextQuestion => &["textcaptcha"],
            Self::Bls => &["instructions"],
            // Unknown kinds must name their page: without it no declaration could be checked.
            Self::Other(_) => &["pageurl"],
            Self::Rotate => &[],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = BadChallenge;

    fn from_str(name: &str) -> Result<Self, BadChallenge> {
        if let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == name) {
            return Ok(kind.clone());
        }
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if name.is_empty() || name.len() > 40 || !name.bytes().all(plain) {
            return Err(BadChallenge::Kind(name.chars().take(60).collect()));
        }
        Ok(Self::Other(name.to_owned()))
    }
}

impl TryFrom<String> for Kind {
    type Error = BadChallenge;
    fn try_from(name: String) -> Result<Self, BadChallenge> {
        name.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.name().to_owned()
    }
}

// === impl Challenge ===

impl Challenge {
    /// Checks the parts once; a challenge that exists can be sent.
    pub fn new(kind: Kind, draft: Draft) -> Result<Self, BadChallenge> {
        let Draft { sitekey, pageurl, params, files } = draft;
        let challenge = Self { kind, sitekey, pageurl, params, files };
        challenge.check_sizes()?;
        if let Some(sitekey) = &challenge.sitekey {
            check_value("sitekey", sitekey, SITEKEY_MAX)?;
        }
        for (name, value) in &challenge.params {
            check_name(name)?;
            check_value(name, value, PARAM_BYTES_MAX)?;
        }
        match challenge.kind.needs().iter().find(|part| !challenge.has(part)) {
            Some(part) => Err(BadChallenge::Missing { kind: challenge.kind.clone(), part }),
            None => Ok(challenge),
        }
    }

    fn check_sizes(&self) -> Result<(), BadChallenge> {
        let params: usize = self.params.iter().map(|(k, v)| k.len() + v.len()).sum();
        let files: usize = self.files.values().map(Vec::len).sum();
        let fits =
            self.params.len() <= PARAMS_MAX && params <= PARAM_BYTES_MAX && files <= FILE_BYTES_MAX;
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

    /// The family it belongs to.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The site's public key.
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

    /// Decoded pictures, in order of their names.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }
}

/// Parameters may hold proxies, cookies and data of the site: only their names are shown.
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

fn check_name(name: &str) -> Result<(), BadChallenge> {
    if RESERVED.contains(&name) {
        return Err(BadChallenge::Reserved(name.to_owned()));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-[].".contains(&b);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(BadChallenge::Name(name.chars().take(80).collect()));
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

    fn draft() -> Draft {
        let pageurl = PageUrl::parse("https://shop.example.com/login").unwrap();
        Draft { sitekey: Some("0x4AAA".into()), pageurl: Some(pageurl), ..Draft::default() }
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
            let mut parts = draft();
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
            Challenge::new(Kind::Turnstile, Draft { sitekey: Some(sitekey.into()), ..draft() })
        };
        assert!(with("0x4A\r\nX: y").is_err());
        assert!(with("a\0b").is_err());
        assert!(with(&"k".repeat(3000)).is_err());
        assert!(with("").is_err());
        assert!(with("'; DROP TABLE solves; --").is_ok());
    }

    #[test]
    fn debug_shows_no_values() {
        let mut parts = draft();
        parts.params.insert("proxy".into(), "user:canary@host:1".into());
        let shown = format!("{:?}", Challenge::new(Kind::Turnstile, parts).unwrap());
        assert!(!shown.contains("canary") && shown.contains("proxy"), "{shown}");
    }
}
