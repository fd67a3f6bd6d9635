//! The parameters of each kind, as data, and the names that no parameter may have. docs/guard.md prints the same lists; a test
//! compares the two.
//!
//! Names are compared *folded*: lower case, without `_ - . [ ]`. Clients and providers disagree on spelling (`min_len`,
//! `minLen`), so a list of exact names would refuse real clients and miss real shadows.

use super::Kind;

/// How a parameter's value is searched for URLs and hosts. The variants go from strict to lax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The value as a whole names a host or URL, which must be the site's own or one of these vendor's.
    Vendor(&'static [&'static str]),
    /// Every URL and every host in it is a target.
    Full,
    /// Data of the vendor's widget, often encoded: URLs in it are targets, and the value as a whole if it is a host. Parts of it
    /// are not, because encoded bytes look like hosts now and then.
    Blob,
    /// Words for a person, or a user agent: URLs in it are targets, host names are not.
    Prose,
    /// The worker's own proxy, which is another host by its nature.
    Proxy,
}

/// The folded form of a parameter's name.
pub fn fold(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-' | '.' | '[' | ']'))
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Fields of the protocol that a caller cannot set, because the gateway sets or refuses them.
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

/// Other names for gateway fields, at services that know both protocols.
const GATEWAY_ALIASES: [&str; 8] = [
    "clientkey",
    "callback",
    "callbackurl",
    "pingbackurl",
    "webhook",
    "webhookurl",
    "taskid",
    "idempotencykey",
];
const PAGE_ALIASES: [&str; 12] = [
    "pageurl",
    "pageuri",
    "page",
    "url",
    "uri",
    "href",
    "websiteurl",
    "website",
    "siteurl",
    "site",
    "target",
    "targeturl",
];
const SITEKEY_ALIASES: [&str; 9] = [
    "sitekey",
    "googlekey",
    "publickey",
    "websitekey",
    "websitepublickey",
    "datasitekey",
    "recaptchakey",
    "hcaptchakey",
    "turnstilekey",
];
/// Site keys of kinds that have a name. An opened method may call something else so.
const NAMED_KIND_KEYS: [&str; 2] = ["gt", "captchaid"];

/// What opened methods call their site key. `sitekeys` of a site pins these too.
pub(crate) const OTHER_KEYS: [&str; 9] = [
    "captchaid",
    "captchakey",
    "appid",
    "apikey",
    "gt",
    "miserykey",
    "masterurlid",
    "sscuserid",
    "challengekey",
];

/// Whether a parameter of this name could stand in for a field that the gateway sets or checks. PHP reads `pageurl[x` as
/// `pageurl`, so the part before a bracket counts too.
pub(super) fn is_checked_field(kind: &Kind, name: &str) -> bool {
    let before_bracket = name.split('[').next().unwrap_or_default();
    [fold(name), fold(before_bracket)].iter().any(|folded| {
        let folded = folded.as_str();
        RESERVED.iter().any(|reserved| fold(reserved) == folded)
            || GATEWAY_ALIASES.contains(&folded)
            || PAGE_ALIASES.contains(&folded)
            || SITEKEY_ALIASES.contains(&folded)
            || (!matches!(kind, Kind::Other(_)) && NAMED_KIND_KEYS.contains(&folded))
    })
}

/// Clients send these with everything when they are set once for all calls, so every kind has them. For a picture they have no
/// effect.
const ALL: [&str; 3] = ["userAgent", "proxy", "proxytype"];

/// `*` stands for a number, `[*]` for anything in brackets.
const RECAPTCHA: &[&str] = &[
    "action",
    "cookies",
    "data-s",
    "datas",
    "domain",
    "enterprise",
    "invisible",
    "json_cookies",
    "lang",
    "min_score",
    "score",
    "version",
];
const HCAPTCHA: &[&str] =
    &["cookies", "data", "domain", "enterprise", "invisible", "lang", "rqdata"];
const TURNSTILE: &[&str] =
    &["action", "cdata", "chlPageData", "cookies", "data", "lang", "pagedata"];
const CLOUDFLARE: &[&str] = &["cookies", "lang"];
const GEETEST: &[&str] = &[
    "api_server",
    "challenge",
    "cookies",
    "lang",
    "new_captcha",
    "offline",
    "risk_type",
    "version",
];
const FUNCAPTCHA: &[&str] = &["cookies", "data", "data[*]", "lang", "nojs", "surl"];
const IMAGE: &[&str] = &[
    "body",
    "calc",
    "case",
    "caseSensitive",
    "ext",
    "filename",
    "imginstructions",
    "is_russian",
    "lang",
    "language",
    "math",
    "max_len",
    "max_length",
    "min_len",
    "min_length",
    "numeric",
    "phrase",
    "question",
    "regsense",
    "textinstructions",
];
const TEXT: &[&str] = &["lang", "language", "textcaptcha"];
const GRID: &[&str] = &[
    "body",
    "can_no_answer",
    "canvas",
    "ext",
    "filename",
    "grid_size",
    "imginstructions",
    "img_type",
    "instructions",
    "lang",
    "language",
    "max_clicks",
    "min_clicks",
    "previousID",
    "recaptcha",
    "recaptchacols",
    "recaptcharows",
    "textinstructions",
];
const COORDINATES: &[&str] = &[
    "body",
    "coordinatescaptcha",
    "ext",
    "filename",
    "imginstructions",
    "instructions",
    "lang",
    "language",
    "max_clicks",
    "min_clicks",
    "textinstructions",
];
const BLS: &[&str] = &["code", "image_base64_*", "instructions", "lang"];
const ROTATE: &[&str] = &[
    "angle",
    "body",
    "ext",
    "file_*",
    "filename",
    "imginstructions",
    "lang",
    "language",
    "textinstructions",
];
/// Everything else needs the site's `params`.
const OTHER: &[&str] = &[];

impl Kind {
    /// The parameters and files of this kind, besides page and site key. `*` stands for a number, `[*]` for anything in
    /// brackets.
    pub fn params(&self) -> impl Iterator<Item = &'static str> + use<> {
        let own = match self {
            Self::RecaptchaV2 | Self::RecaptchaV3 => RECAPTCHA,
            Self::Hcaptcha => HCAPTCHA,
            Self::Turnstile => TURNSTILE,
            Self::CloudflareChallenge => CLOUDFLARE,
            Self::Geetest | Self::GeetestV4 => GEETEST,
            Self::Funcaptcha => FUNCAPTCHA,
            Self::Image => IMAGE,
            Self::TextQuestion => TEXT,
            Self::Grid => GRID,
            Self::Coordinates => COORDINATES,
            Self::Bls => BLS,
            Self::Rotate => ROTATE,
            Self::Other(_) => OTHER,
        };
        own.iter().copied().chain(ALL)
    }

    /// Whether the kind's own list has the parameter.
    pub fn has_param(&self, name: &str) -> bool {
        self.params().any(|listed| fits(listed, name))
    }
}

/// Whether the name is one that a list means.
fn fits(listed: &str, name: &str) -> bool {
    if let Some(base) = listed.strip_suffix("[*]") {
        return name.split_once('[').is_some_and(|(before, _)| fold(before) == fold(base));
    }
    let folded = fold(name);
    match listed.strip_suffix('*') {
        Some(base) => folded
            .strip_prefix(&fold(base))
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())),
        None => fold(listed) == folded,
    }
}

const GOOGLE: &[&str] = &[
    "google.com",
    "www.google.com",
    "recaptcha.google.com",
    "recaptcha.net",
    "www.recaptcha.net",
    "hcaptcha.com",
    "*.hcaptcha.com",
];
const API_SERVERS: &[&str] = &[
    "*.geetest.com",
    "*.geevisit.com",
    "*.gsensebot.com",
    "*.leminnow.com",
    "*.capy.me",
    "*.aisecurius.com",
    "*.captchafox.com",
];
const DATADOME: &[&str] = &["*.captcha-delivery.com"];
const ARKOSE: &[&str] =
    &["*.arkoselabs.com", "arkoselabs.com", "*.funcaptcha.com", "funcaptcha.com"];
const SCRIPTS: &[&str] = &["*.awswaf.com", "*.captcha.qcloud.com", "captcha.gtimg.com"];
const COOKIES: &[&str] = &["google.com", "*.google.com", "recaptcha.net", "*.recaptcha.net"];

/// Every parameter whose value is not read in full.
pub const READINGS: &[(&str, Reading)] = &[
    ("domain", Reading::Vendor(GOOGLE)),
    ("api_server", Reading::Vendor(API_SERVERS)),
    ("surl", Reading::Vendor(ARKOSE)),
    ("captcha_script", Reading::Vendor(SCRIPTS)),
    ("captcha_url", Reading::Vendor(DATADOME)),
    ("challenge_script", Reading::Vendor(SCRIPTS)),
    ("cdata", Reading::Blob),
    ("challenge", Reading::Blob),
    ("chlPageData", Reading::Blob),
    ("cookies", Reading::Blob),
    ("data", Reading::Blob),
    ("data[*]", Reading::Blob),
    ("data-s", Reading::Blob),
    ("datas", Reading::Blob),
    ("json_cookies", Reading::Blob),
    ("pagedata", Reading::Blob),
    ("rqdata", Reading::Blob),
    ("filename", Reading::Prose),
    ("imginstructions", Reading::Prose),
    ("instructions", Reading::Prose),
    ("question", Reading::Prose),
    ("textcaptcha", Reading::Prose),
    ("textinstructions", Reading::Prose),
    ("userAgent", Reading::Prose),
    ("proxy", Reading::Proxy),
];

/// How the value of a parameter is read. A parameter that the kind's own list does not have is never read as a blob or as
/// prose: nobody knows what the provider does with it.
pub(crate) fn reading(kind: &Kind, name: &str) -> Reading {
    let reading = READINGS
        .iter()
        .find(|(listed, _)| fits(listed, name))
        .map_or(Reading::Full, |(_, reading)| *reading);
    match reading {
        Reading::Blob | Reading::Prose if !kind.has_param(name) => Reading::Full,
        Reading::Vendor(_) | Reading::Full | Reading::Blob | Reading::Prose | Reading::Proxy => {
            reading
        }
    }
}

/// Vendors' hosts that a cookie may be for, besides the site's own.
pub(crate) fn cookie_hosts(name: &str) -> &'static [&'static str] {
    if matches!(fold(name).as_str(), "cookies" | "jsoncookies") { COOKIES } else { &[] }
}

/// The most similar name, if it is similar enough to be meant; the first of equals.
pub fn nearest<'n>(names: impl Iterator<Item = &'n str>, written: &str) -> Option<&'n str> {
    let similarity = |name: &str| strsim::jaro_winkler(&fold(name), &fold(written));
    let best = names.min_by(|a, b| similarity(b).total_cmp(&similarity(a)))?;
    (similarity(best) >= 0.8).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_has_a_name_that_stands_in_for_a_checked_field() {
        for kind in Kind::known().chain([Kind::Other("yandex".into())]) {
            for name in kind.params() {
                assert!(!is_checked_field(&kind, name), "{kind}: {name}");
                assert!(kind.has_param(&name.replace('*', "1")), "{kind}: {name}");
            }
        }
    }

    #[test]
    fn real_clients_spellings_are_known() {
        for (kind, names) in [
            (Kind::Image, "caseSensitive regsense minLen maxLen min_len max_len numeric phrase"),
            (Kind::Geetest, "apiServer api_server challenge new_captcha offline userAgent"),
            (Kind::RecaptchaV2, "data-s useragent userAgent json_cookies version invisible domain"),
            (Kind::RecaptchaV3, "version action min_score minScore enterprise proxy proxytype"),
            (Kind::Funcaptcha, "surl data[blob] data[key] userAgent proxy"),
            (Kind::Grid, "recaptcha recaptcharows img_type grid_size previousID can_no_answer"),
            (Kind::Bls, "image_base64_1 image_base64_9 code instructions"),
            (Kind::Rotate, "file_1 file_9 angle body"),
        ] {
            for name in names.split(' ') {
                assert!(kind.has_param(name), "{kind}: {name}");
            }
        }
        assert!(!Kind::Turnstile.has_param("body") && !Kind::Bls.has_param("image_base64_x"));
    }

    #[test]
    fn every_spelling_of_a_checked_field_is_recognised() {
        for name in [
            "PageUrl",
            "PAGEURL",
            "page_url",
            "page-url",
            "url",
            "websiteURL",
            "websiteKey",
            "google_key",
            "Pingback",
            "callback",
            "callbackUrl",
            "softId",
            "soft.id",
            "Key",
            "JSON",
            "Method",
            "pageurl[0]",
            "pageurl[x",
            "[pageurl",
            "site.key",
            "publicKey",
            "gt",
            "captcha-id",
        ] {
            assert!(is_checked_field(&Kind::Turnstile, name), "{name}");
        }
        assert!(!is_checked_field(&Kind::Other("lemin".into()), "captcha_id"));
        assert!(is_checked_field(&Kind::Other("lemin".into()), "web_site_url"));
    }
}
