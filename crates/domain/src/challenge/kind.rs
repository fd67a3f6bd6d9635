//! Kinds of challenges, and the properties that follow from the kind.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::BadChallenge;

/// A kind of challenge. `Other` holds the provider's own word, because new kinds appear several times a year.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// reCAPTCHA v2, visible or invisible.
    RecaptchaV2,
    /// reCAPTCHA v3, which scores visitors.
    RecaptchaV3,
    /// hCaptcha, visible or invisible.
    Hcaptcha,
    /// Cloudflare Turnstile.
    Turnstile,
    /// Cloudflare's challenge page. Its clearance works only with the same proxy and user agent.
    CloudflareChallenge,
    /// GeeTest version 3, a slider.
    Geetest,
    /// GeeTest version 4; it has a captcha id instead of `gt`.
    GeetestV4,
    /// Arkose Labs `FunCaptcha`.
    Funcaptcha,
    /// The text in a picture.
    Image,
    /// A question in words.
    TextQuestion,
    /// The cells of a grid that match an instruction.
    Grid,
    /// The points of a picture that match an instruction.
    Coordinates,
    /// Nine pictures and an instruction.
    Bls,
    /// The angle of a picture.
    Rotate,
    /// Any other method of the provider, by its name.
    Other(String),
}

/// Whether one token may serve several claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// The site accepts the token once.
    Exclusive,
    /// The site accepts it again, but only with the same proxy and user agent; both are part of the fingerprint.
    Bound,
    /// The answer is a fact about the picture, so everybody may use it.
    Shared,
}

/// Names every kind in config, API and metrics. One list makes the names and [`KINDS`], so that the compiler asks for a new
/// kind in both.
macro_rules! name_kinds {
    ($($kind:ident => $name:literal,)*) => {
        const KINDS: &[(&str, Kind)] = &[$(($name, Kind::$kind)),*];

        impl Kind {
            /// The kind's name in config, API and metrics.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$kind => $name,)*
                    Self::Other(name) => name,
                }
            }
        }
    };
}

/// Methods of in.php that are not the name of a kind.
const METHODS: [&str; 5] = ["userrecaptcha", "rotatecaptcha", "base64", "post", "textcaptcha"];

/// Methods without a kind of their own that have no page at the provider.
pub const PAGELESS_METHODS: [&str; 4] = ["audio", "vkimage", "temuimage", "bounding_box"];

name_kinds! {
    RecaptchaV2 => "recaptcha_v2",
    RecaptchaV3 => "recaptcha_v3",
    Hcaptcha => "hcaptcha",
    Turnstile => "turnstile",
    CloudflareChallenge => "cloudflare_challenge",
    Geetest => "geetest",
    GeetestV4 => "geetest_v4",
    Funcaptcha => "funcaptcha",
    Image => "image",
    TextQuestion => "text",
    Grid => "grid",
    Coordinates => "coordinates",
    Bls => "bls",
    Rotate => "rotate",
}

impl Kind {
    /// All kinds but `Other`.
    pub fn known() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|(_, kind)| kind.clone())
    }

    /// The kind under which daily totals count it. All unknown kinds are one, because their names are the callers' choice
    /// and every name would make a row of its own for 400 days.
    #[must_use]
    pub fn in_totals(&self) -> Self {
        match self {
            Self::Other(_) => Self::Other("other".into()),
            Self::RecaptchaV2
            | Self::RecaptchaV3
            | Self::Hcaptcha
            | Self::Turnstile
            | Self::CloudflareChallenge
            | Self::Geetest
            | Self::GeetestV4
            | Self::Funcaptcha
            | Self::Image
            | Self::TextQuestion
            | Self::Grid
            | Self::Coordinates
            | Self::Bls
            | Self::Rotate => self.clone(),
        }
    }

    /// Whether a token of this kind may serve several claims. Unknown kinds are exclusive: a token handed out twice fails
    /// at the site, while a second solve only costs money.
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

    /// Whether the provider solves this kind without opening a page, so that `[images]` has to declare it. A page that is sent
    /// along proves nothing.
    pub fn is_pageless(&self) -> bool {
        match self {
            Self::Other(method) => PAGELESS_METHODS.contains(&method.as_str()),
            Self::RecaptchaV2
            | Self::RecaptchaV3
            | Self::Hcaptcha
            | Self::Turnstile
            | Self::CloudflareChallenge
            | Self::Geetest
            | Self::GeetestV4
            | Self::Funcaptcha
            | Self::Image
            | Self::TextQuestion
            | Self::Grid
            | Self::Coordinates
            | Self::Bls
            | Self::Rotate => self.sharing() == Sharing::Shared,
        }
    }

    /// Whether challenges of this kind have a site key. An opened method may.
    pub(crate) fn has_sitekey(&self) -> bool {
        (matches!(self, Self::Other(_)) && !self.is_pageless()) || self.needs().contains(&"sitekey")
    }

    /// Whether this is a method of in.php under which a known kind is sent.
    pub fn is_method_of_known_kind(&self) -> bool {
        matches!(self, Self::Other(name) if METHODS.contains(&name.as_str()))
    }

    /// The known kind or method with the most similar name, for messages about an unknown one.
    pub fn nearest(&self) -> Option<&'static str> {
        let names = KINDS.iter().map(|(name, _)| *name).chain(METHODS);
        super::nearest(names, self.name())
    }

    /// How long a token lives from the moment it was solved, and the margin that is held back at the end.
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

    /// The parts that this kind requires: `sitekey`, `pageurl`, `body` (the picture), or parameters.
    pub fn needs(&self) -> &'static [&'static str] {
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
            // Unknown kinds must name their page, because a declaration is checked against it.
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
            let nearest = super::nearest(KINDS.iter().map(|(known, _)| *known), name);
            let (name, nearest) = (name.chars().take(60).collect(), nearest.map(str::to_owned));
            return Err(BadChallenge::Kind { name, nearest });
        }
        Ok(Self::Other(name.to_owned()))
    }
}

serialize_as_text!(Kind);
