//! Maps the provider's methods to kinds, and kinds to methods.

use domain::challenge::Kind;

use super::{BadPart, Dialect, Fields, Files, is_set, picture};

/// Distinguishes kinds that share a method. It is part of the kind, so it is never a parameter of a challenge.
pub(super) const VERSION: &str = "version";
const V3: &str = "v3";
const V4: &str = "4";

/// The kind the fields describe.
pub(super) fn from_fields(
    method: Option<&str>,
    fields: &Fields,
    files: &Files,
) -> Result<Kind, BadPart> {
    let version = fields.get(VERSION).map(String::as_str);
    match method {
        None | Some("post" | "base64") => pictured(method, fields, files),
        Some("userrecaptcha") if version == Some(V3) => Ok(Kind::RecaptchaV3),
        Some("userrecaptcha") => Ok(Kind::RecaptchaV2),
        Some("geetest") if version == Some(V4) => Ok(Kind::GeetestV4),
        Some("geetest") => Ok(Kind::Geetest),
        Some("rotatecaptcha") => Ok(Kind::Rotate),
        // The Ruby client's word.
        Some("textcaptcha") => Ok(Kind::TextQuestion),
        Some(other) => same_name(other),
    }
}

/// An image or a text question; neither has its own method.
fn pictured(method: Option<&str>, fields: &Fields, files: &Files) -> Result<Kind, BadPart> {
    let get = |name| fields.get(name).map(String::as_str);
    if picture::has_main(fields, files) {
        // The Go and PHP clients say only how many rows and columns there are.
        let is_grid = is_set(get("recaptcha"))
            || get("img_type") == Some("recaptcha")
            || ["recaptcharows", "recaptchacols"].iter().any(|name| get(name).is_some());
        let is_coordinates = is_set(get("coordinatescaptcha"));
        return Ok(match (is_grid, is_coordinates) {
            (true, _) => Kind::Grid,
            (false, true) => Kind::Coordinates,
            (false, false) => Kind::Image,
        });
    }
    match (get("textcaptcha"), method) {
        (Some(_), _) => Ok(Kind::TextQuestion),
        (None, Some(_)) => Ok(Kind::Image),
        (None, None) => Err(BadPart::Nothing),
    }
}

/// Methods with the same name as their kind, and unknown methods.
fn same_name(method: &str) -> Result<Kind, BadPart> {
    let kind: Kind = method.parse()?;
    let has_this_method = self::method(&kind, Dialect::TwoCaptcha) == (kind.name(), None);
    if has_this_method { Ok(kind) } else { Err(BadPart::Method(method.to_owned())) }
}

/// The method of a kind, and its version where several kinds share the method.
pub(super) fn method(kind: &Kind, dialect: Dialect) -> (&str, Option<&'static str>) {
    match (kind, dialect) {
        (Kind::RecaptchaV2, _) => ("userrecaptcha", None),
        (Kind::RecaptchaV3, _) => ("userrecaptcha", Some(V3)),
        (Kind::GeetestV4, Dialect::CaptchaAi) => ("geetest", Some(V4)),
        (Kind::Image | Kind::Grid | Kind::Coordinates, _) => ("base64", None),
        (Kind::TextQuestion, _) => ("post", None),
        (Kind::Rotate, _) => ("rotatecaptcha", None),
        (
            Kind::Hcaptcha
            | Kind::Turnstile
            | Kind::CloudflareChallenge
            | Kind::Geetest
            | Kind::GeetestV4
            | Kind::Funcaptcha
            | Kind::Bls
            | Kind::Other(_),
            _,
        ) => (kind.name(), None),
    }
}

/// The provider's name for the site's key.
pub(super) fn sitekey_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::RecaptchaV2 | Kind::RecaptchaV3 => "googlekey",
        Kind::Geetest => "gt",
        Kind::GeetestV4 => "captcha_id",
        Kind::Funcaptcha => "publickey",
        Kind::Hcaptcha
        | Kind::Turnstile
        | Kind::CloudflareChallenge
        | Kind::Image
        | Kind::TextQuestion
        | Kind::Grid
        | Kind::Coordinates
        | Kind::Bls
        | Kind::Rotate
        | Kind::Other(_) => "sitekey",
    }
}

/// What in.php calls the kind and its site key: `userrecaptcha&version=v3`, `googlekey`.
pub fn in_php_names(kind: &Kind) -> (String, &'static str) {
    let mut fields = Fields::new();
    mark(kind, &mut fields);
    let method = fields.remove("method").unwrap_or_default();
    let markers = fields.iter().map(|(name, value)| format!("&{name}={value}"));
    (markers.fold(method, |all, marker| all + &marker), sitekey_name(kind))
}

/// Adds the fields that identify this kind. Existing fields stay, so that a contradiction is detected.
pub(super) fn mark(kind: &Kind, fields: &mut Fields) {
    let (method, version) = method(kind, Dialect::default());
    fields.insert("method".to_owned(), method.to_owned());
    let img_type = fields.get("img_type").map(String::as_str);
    let marker = if *kind == Kind::Grid && img_type != Some("recaptcha") {
        Some(("recaptcha", "1"))
    } else if *kind == Kind::Coordinates {
        Some(("coordinatescaptcha", "1"))
    } else {
        version.map(|version| (VERSION, version))
    };
    if let Some((name, value)) = marker {
        fields.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
}

/// Removes a version that the kind already implies.
pub(super) fn unmark(kind: &Kind, fields: &mut Fields) {
    let said = method(kind, Dialect::CaptchaAi).1;
    if said.is_some() && fields.get(VERSION).map(String::as_str) == said {
        fields.remove(VERSION);
    }
}
